-- What monitor jobs have found.  rev_ts is 2^63 - 1 less the nanoseconds since 1970, so the newest come first, in the
-- table and in the index; it is unique over all jobs.  Not encrypted, where values are: scripts query them.
CREATE TABLE record (
    rev_ts  INTEGER PRIMARY KEY,
    job     TEXT NOT NULL,
    hash    BLOB NOT NULL,
    url     TEXT NOT NULL,           -- of the page
    fields  TEXT NOT NULL,           -- JSON, an object of texts
    matches TEXT NOT NULL,           -- JSON, an array of texts
    is_owed INTEGER NOT NULL DEFAULT 0  -- 1: it is new, and not announced yet
);
CREATE INDEX record_of_job ON record (job);
CREATE INDEX record_owed ON record (job) WHERE is_owed;

-- What makes an item no news: it outlives the record.
CREATE TABLE seen (
    job      TEXT NOT NULL,
    hash     BLOB NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms  INTEGER NOT NULL,       -- to the day
    PRIMARY KEY (job, hash)
) WITHOUT ROWID;
CREATE INDEX seen_by_age ON seen (last_ms);

-- What is to be sent, until it has arrived.  Ids never repeat.
CREATE TABLE message (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    delivery   TEXT NOT NULL,        -- what a receiver knows it by
    job        TEXT NOT NULL,
    channel    TEXT NOT NULL,
    address    TEXT NOT NULL,
    headers    TEXT NOT NULL,        -- JSON, an array of pairs
    payload    BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_ms    INTEGER NOT NULL,     -- not before this moment
    holds      INTEGER NOT NULL DEFAULT 1,  -- 1: those behind it to the same address wait for it
    error      TEXT NOT NULL DEFAULT '',    -- of the last attempt
    dead_ms    INTEGER               -- when it was given up; NULL: it waits
);
CREATE INDEX message_waiting ON message (channel, address) WHERE dead_ms IS NULL;
CREATE INDEX message_dead ON message (dead_ms) WHERE dead_ms IS NOT NULL;
