-- The schedules that jobs have had: what was due is computed from them, and compared with what is on record.
CREATE TABLE schedule (
    id       INTEGER PRIMARY KEY,
    job      TEXT NOT NULL,
    until_ms INTEGER NOT NULL,          -- up to here the due times of the row before count
    due_ms   INTEGER NOT NULL,          -- the cursor: after it those of this row count
    schedule TEXT NOT NULL,
    run      INTEGER NOT NULL           -- the newest of the job when it began: 0 for none
);
CREATE INDEX schedule_of_job ON schedule (job, id);

CREATE TRIGGER schedule_bounded AFTER INSERT ON schedule BEGIN
    DELETE FROM schedule WHERE job = new.job AND id <= (
        SELECT id FROM schedule WHERE job = new.job ORDER BY id DESC LIMIT 1 OFFSET 1000
    );
END;

-- Rows of runs up to which due time were deleted.
CREATE TABLE pruned (
    job    TEXT PRIMARY KEY,
    due_ms INTEGER NOT NULL             -- not above the cursor, which a clock that ran ahead has left
) WITHOUT ROWID;

CREATE TRIGGER pruned_of_run AFTER DELETE ON run WHEN old.due_ms IS NOT NULL BEGIN
    INSERT INTO pruned (job, due_ms) VALUES (old.job, min(
        coalesce(old.last_due_ms, old.due_ms), coalesce((SELECT due_ms FROM cursor WHERE job = old.job), old.due_ms)
    )) ON CONFLICT (job) DO UPDATE SET due_ms = max(pruned.due_ms, excluded.due_ms);
    DELETE FROM schedule WHERE job = old.job AND id < (
        SELECT max(id) FROM schedule WHERE job = old.job
            AND until_ms <= (SELECT due_ms FROM pruned WHERE job = old.job)
    );
END;
CREATE INDEX run_range ON run (job, last_due_ms) WHERE last_due_ms IS NOT NULL;

-- What is known of the time before: nothing.
INSERT INTO schedule (job, until_ms, due_ms, schedule, run) SELECT job, due_ms, due_ms, schedule, 0 FROM cursor;
