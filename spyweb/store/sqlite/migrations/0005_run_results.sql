-- What a run gave: the beginning of what its script returned, and of a monitor's run how the page answered, how many
-- items it had and how many of them were new.  `note` says what else a person should know of it.
ALTER TABLE run ADD COLUMN result TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN http_status INTEGER;  -- NULL: nothing was fetched
ALTER TABLE run ADD COLUMN items_found INTEGER;  -- NULL: no page was taken apart
ALTER TABLE run ADD COLUMN items_new INTEGER;
ALTER TABLE run ADD COLUMN note TEXT NOT NULL DEFAULT '';
