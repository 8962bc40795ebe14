-- The ops of runs, by which these can be replayed.
CREATE TABLE recording (
    run  INTEGER NOT NULL PRIMARY KEY,
    job  TEXT NOT NULL,
    type TEXT NOT NULL,
    data BLOB NOT NULL           -- as a stored value is written: encrypted where there is a key
) WITHOUT ROWID;
CREATE INDEX recording_of_job ON recording (job, run);
CREATE TRIGGER recording_of_run AFTER DELETE ON run BEGIN
    DELETE FROM recording WHERE run = old.id;
END;
