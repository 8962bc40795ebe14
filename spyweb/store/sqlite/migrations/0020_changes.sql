-- Items of which a monitor tracks fields: the texts seen last, and in a record of a change those before it.
ALTER TABLE seen ADD COLUMN tracked TEXT;
ALTER TABLE record ADD COLUMN old TEXT;
