-- Since when a job has been added, was put on its schedule, or last came back: what was due before is not late.
ALTER TABLE cursor ADD COLUMN active_since_ms INTEGER;  -- NULL: recorded before this was
