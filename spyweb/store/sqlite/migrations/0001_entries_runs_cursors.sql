-- What scripts keep.  Keys are any bytes; the type says how the value is to be read ('s': a string, as it is).
-- Not WITHOUT ROWID: there a search reads the whole value of each neighbour that it compares keys with.  Measured:
-- one value of 5 MB makes the others 3 to 80 times slower, values of 2 kB half as fast; small ones differ by 5 %.
CREATE TABLE entry (
    namespace  TEXT NOT NULL,
    key        BLOB NOT NULL,
    type       TEXT NOT NULL,
    value,
    expires_ms INTEGER,             -- NULL: never
    version    INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
);

-- Every due time: what ran, what did not and why.  A row with last_due_ms is a stretch of due times that did not run.
CREATE TABLE run (
    id             INTEGER PRIMARY KEY,
    job            TEXT NOT NULL,
    state          TEXT NOT NULL,
    attempt        INTEGER NOT NULL,
    due_ms         INTEGER,         -- NULL: not from the schedule
    "trigger"      TEXT NOT NULL,   -- JSON
    start_after_ms INTEGER,
    started_ms     INTEGER,
    ended_ms       INTEGER,
    outcome        TEXT,
    failure        TEXT,
    reason         TEXT NOT NULL DEFAULT '',
    traceback      TEXT NOT NULL DEFAULT '',
    cpu_ms         INTEGER NOT NULL DEFAULT 0,
    storage_errors INTEGER NOT NULL DEFAULT 0,
    generation     INTEGER NOT NULL DEFAULT 0,
    last_due_ms    INTEGER,
    count          INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX run_of_job ON run (job, id);
CREATE UNIQUE INDEX run_once ON run (job, due_ms, attempt) WHERE due_ms IS NOT NULL AND last_due_ms IS NULL;
CREATE INDEX run_open ON run (id) WHERE state <> 'ended';

-- How far each job's schedule has been dealt with.
CREATE TABLE cursor (
    job           TEXT PRIMARY KEY,
    due_ms        INTEGER NOT NULL,
    schedule      TEXT NOT NULL,
    paused        INTEGER NOT NULL,
    idle_since_ms INTEGER
) WITHOUT ROWID;
