-- A job lies in a slot of a pool, whose owner runs it: on record, since its settings may differ from node to node.
ALTER TABLE cursor ADD COLUMN pool TEXT NOT NULL DEFAULT '';  -- '': the one for every node
