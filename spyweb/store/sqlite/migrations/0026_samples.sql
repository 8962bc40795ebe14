-- breaking: a node of an earlier version would write results where no one counts them.
-- Until when the end of a run may hold as the result of its job; NULL: it says nothing about it.
ALTER TABLE run ADD COLUMN stale_ms INTEGER;
ALTER TABLE run ADD COLUMN latency INTEGER;
CREATE TABLE sample (
    id       INTEGER PRIMARY KEY,
    job      TEXT NOT NULL,
    at_ms    INTEGER NOT NULL,
    up       INTEGER,
    stale_ms INTEGER NOT NULL,
    latency  INTEGER
);
CREATE TRIGGER sample_of_run AFTER UPDATE ON run WHEN new.stale_ms IS NOT NULL BEGIN
    INSERT INTO sample (job, at_ms, up, stale_ms, latency)
    VALUES (new.job, new.ended_ms, CASE new.outcome WHEN 'success' THEN 1 ELSE 0 END, new.stale_ms, new.latency);
END;

-- The sums of the hour that a standing result had not written down yet go to their hour and their day; latencies, whose
-- form is another one, begin anew.
UPDATE uptime SET latency = '{}';
INSERT INTO uptime (job, unit, start_ms, up_ms, down_ms, excused_ms, ok, failed, latency)
SELECT job, 'hour', written_ms - written_ms % 3600000, up_ms, down_ms, excused_ms, ok, failed, '{}' FROM standing
WHERE since_ms > 0
UNION ALL
SELECT job, 'day', written_ms - written_ms % 86400000, up_ms, down_ms, excused_ms, ok, failed, '{}' FROM standing
WHERE since_ms > 0
ON CONFLICT (job, unit, start_ms) DO UPDATE SET
    up_ms = uptime.up_ms + excluded.up_ms, down_ms = uptime.down_ms + excluded.down_ms,
    excused_ms = uptime.excused_ms + excluded.excused_ms,
    ok = uptime.ok + excluded.ok, failed = uptime.failed + excluded.failed;
ALTER TABLE standing RENAME TO standing_before;
CREATE TABLE standing (
    job        TEXT PRIMARY KEY,
    at_ms      INTEGER NOT NULL,
    up         INTEGER,
    stale_ms   INTEGER NOT NULL,
    counted_ms INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO standing (job, at_ms, up, stale_ms, counted_ms)
SELECT job, since_ms, up, stale_ms, written_ms FROM standing_before WHERE since_ms > 0;
DROP TABLE standing_before;
