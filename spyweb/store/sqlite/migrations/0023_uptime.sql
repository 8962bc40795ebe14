-- Until when the end of a run may hold as the result of its job; NULL: it says nothing about it.
ALTER TABLE run ADD COLUMN stale_ms INTEGER;
ALTER TABLE run ADD COLUMN latency INTEGER;
-- The results of jobs, in the order of their commits, until they are counted: then they are in the tables below.
CREATE TABLE sample (
    id       INTEGER PRIMARY KEY,
    job      TEXT NOT NULL,
    at_ms    INTEGER NOT NULL,
    up       INTEGER,                   -- NULL: nothing is known from then on
    stale_ms INTEGER NOT NULL,          -- nothing is known from then on
    latency  INTEGER                    -- of a success: the number of its bucket
);

CREATE TRIGGER sample_of_run AFTER UPDATE ON run WHEN new.stale_ms IS NOT NULL BEGIN
    INSERT INTO sample (job, at_ms, up, stale_ms, latency)
    VALUES (new.job, new.ended_ms, CASE new.outcome WHEN 'success' THEN 1 ELSE 0 END, new.stale_ms, new.latency);
END;

-- The sample of each job that was counted last, as for the time up to counted_ms.
CREATE TABLE standing (
    job        TEXT PRIMARY KEY,
    at_ms      INTEGER NOT NULL,
    up         INTEGER,
    stale_ms   INTEGER NOT NULL,
    counted_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- For how long jobs were up and down: what is counted so far of an hour, or a day, of UTC.
CREATE TABLE uptime (
    job        TEXT NOT NULL,
    unit       TEXT NOT NULL,           -- hour | day
    start_ms   INTEGER NOT NULL,
    up_ms      INTEGER NOT NULL,
    down_ms    INTEGER NOT NULL,
    excused_ms INTEGER NOT NULL,
    ok         INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    latency    TEXT NOT NULL,           -- JSON, an object: how many successes are in each bucket
    PRIMARY KEY (job, unit, start_ms)
) WITHOUT ROWID;
