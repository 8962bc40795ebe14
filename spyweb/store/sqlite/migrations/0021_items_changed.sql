-- Of the records that a monitor's run has stored, those of changes.
ALTER TABLE run ADD COLUMN items_changed INTEGER;
