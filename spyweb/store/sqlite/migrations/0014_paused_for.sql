-- A job that fails too often is paused: why, and until that is done, that it is to be.
ALTER TABLE cursor ADD COLUMN paused_for TEXT NOT NULL DEFAULT '';  -- '': somebody has paused it
ALTER TABLE subject ADD COLUMN is_pausing INTEGER NOT NULL DEFAULT 0;
