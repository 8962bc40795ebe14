-- The plan of each run with tasks, and of each task that was taken over, the run that performed it.
ALTER TABLE task ADD COLUMN taken_from INTEGER;
CREATE TABLE plan (
    run  INTEGER PRIMARY KEY,
    plan BLOB NOT NULL               -- JSON: the tasks, their dependencies, and digests of the code
);
CREATE TRIGGER plan_of_run AFTER DELETE ON run BEGIN
    DELETE FROM plan WHERE run = old.id;
END;
CREATE TRIGGER plan_of_tasks AFTER DELETE ON task WHEN old.ordinal = 0 BEGIN
    DELETE FROM plan WHERE run = old.run;
END;
