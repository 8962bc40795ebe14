-- A change event stays until the runs that it started have ended: they read it there, where it is sealed if values are.
ALTER TABLE event ADD COLUMN delivered INTEGER NOT NULL DEFAULT 0;  -- 1: it starts no more runs
CREATE INDEX event_pending ON event (id) WHERE delivered = 0;

-- Which jobs an event has started, each with its latest run.
CREATE TABLE started (
    event INTEGER NOT NULL,
    job   TEXT NOT NULL,
    run   INTEGER NOT NULL,
    PRIMARY KEY (event, job)
) WITHOUT ROWID;
