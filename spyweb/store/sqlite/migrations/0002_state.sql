-- Typed values need no new column.  What `type` may be: s string, i integer, f float, b boolean, n JSON null,
-- j a table as JSON text, m a table as msgpack.  Where a row of `seal` stands, all values are sealed blobs instead.
CREATE INDEX entry_expiring ON entry (expires_ms) WHERE expires_ms IS NOT NULL;

-- Past versions of entries, where a namespace keeps them.  Columns as in `entry`.
CREATE TABLE past (
    namespace   TEXT NOT NULL,
    key         BLOB NOT NULL,
    version     INTEGER NOT NULL,
    type        TEXT NOT NULL,
    value,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    archived_ms INTEGER NOT NULL,    -- when it was replaced or deleted
    PRIMARY KEY (namespace, key, version)
);
CREATE INDEX past_by_age ON past (namespace, archived_ms);

-- Locks that scripts hold.
CREATE TABLE lock (
    name        BLOB PRIMARY KEY,
    holder      BLOB NOT NULL,
    run         INTEGER,             -- NULL: not a run's
    acquired_ms INTEGER NOT NULL,
    expires_ms  INTEGER NOT NULL,
    lease_ms    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX lock_of_run ON lock (run) WHERE run IS NOT NULL;

-- The outbox: changes that somebody watches, until the run that they start is recorded.  Ids never repeat.
CREATE TABLE event (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace   TEXT NOT NULL,
    key         BLOB NOT NULL,
    kind        TEXT NOT NULL,
    old_version INTEGER,             -- NULL: there was none
    old_type    TEXT,
    old_value,
    new_version INTEGER,             -- NULL: there is none any more
    new_type    TEXT,
    new_value,
    at_ms       INTEGER NOT NULL,
    job         TEXT,
    run         INTEGER,
    depth       INTEGER NOT NULL
);

-- One row where values are encrypted: something known, sealed, by which the key is recognised.
CREATE TABLE seal (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    type    TEXT NOT NULL,
    value   BLOB NOT NULL
);
