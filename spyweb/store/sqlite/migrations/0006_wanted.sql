-- Which jobs want a change: a row for each job that watched, written with the event.  The event goes with the last one.
CREATE TABLE wanted (
    event INTEGER NOT NULL,
    job   TEXT NOT NULL,
    run   INTEGER,                   -- the latest that was claimed for it; NULL: none yet
    PRIMARY KEY (event, job)
) WITHOUT ROWID;
CREATE INDEX wanted_waiting ON wanted (job, event) WHERE run IS NULL;

-- Earlier it was not written down who watched: what was still to be handed out starts nothing.  What a run that has not
-- ended was started by stays for it.
INSERT INTO wanted (event, job, run)
    SELECT started.event, started.job, started.run
    FROM started JOIN event ON event.id = started.event JOIN run ON run.id = started.run
    WHERE run.state <> 'ended';
DELETE FROM event WHERE NOT EXISTS (SELECT 1 FROM wanted WHERE wanted.event = event.id);
DROP TABLE started;
DROP INDEX event_pending;
ALTER TABLE event DROP COLUMN delivered;
