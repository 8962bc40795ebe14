-- Rows for a job whose file was broken as its database was brought past 0006, and those of runs that have ended: nobody
-- reads them any more, and their events would stay for good.
DELETE FROM wanted WHERE job = '' OR run = 0 OR EXISTS (
    SELECT 1 FROM run WHERE run.id = wanted.run AND run.state = 'ended'
);
DELETE FROM event WHERE NOT EXISTS (SELECT 1 FROM wanted WHERE wanted.event = event.id);
