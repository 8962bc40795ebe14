-- For how long jobs were up and down.  A row is an hour or a day of UTC that is over for its job.
CREATE TABLE uptime (
    job        TEXT NOT NULL,
    unit       TEXT NOT NULL,
    start_ms   INTEGER NOT NULL,
    up_ms      INTEGER NOT NULL,
    down_ms    INTEGER NOT NULL,
    excused_ms INTEGER NOT NULL,
    ok         INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    latency    TEXT NOT NULL,           -- of successes: a letter for each bucket, with a count behind it if it is not 1
    PRIMARY KEY (job, unit, start_ms)
) WITHOUT ROWID;
-- The result that holds, and the hour in which it was last written down.
CREATE TABLE standing (
    job        TEXT PRIMARY KEY,
    since_ms   INTEGER NOT NULL,        -- the end of its run
    written_ms INTEGER NOT NULL,        -- the time before is written down
    up         INTEGER,                 -- NULL: nothing is known since then
    stale_ms   INTEGER NOT NULL,        -- nothing is known from then on
    up_ms      INTEGER NOT NULL,        -- these as above, of the hour of written_ms up to it
    down_ms    INTEGER NOT NULL,
    excused_ms INTEGER NOT NULL,
    ok         INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    latency    TEXT NOT NULL
) WITHOUT ROWID;
