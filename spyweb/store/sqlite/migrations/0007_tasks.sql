-- How each task of a run ended: a row a task, committed before what depends on it begins.
CREATE TABLE task (
    run        INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,     -- in the order of the tasks' definition, from 0 on
    workflow   TEXT NOT NULL,        -- '': the file has none
    name       TEXT NOT NULL,
    status     TEXT NOT NULL,
    attempts   INTEGER NOT NULL,     -- 0: none was made, or it was made by the run that this one resumes
    started_ms INTEGER,              -- NULL: it was skipped for another task, and nobody asked its own condition
    ended_ms   INTEGER NOT NULL,
    message    TEXT NOT NULL DEFAULT '',
    output     BLOB,                 -- msgpack, a list of one value
    PRIMARY KEY (run, ordinal)
) WITHOUT ROWID;
CREATE TRIGGER task_of_run AFTER DELETE ON run BEGIN
    DELETE FROM task WHERE run = old.id;
END;
