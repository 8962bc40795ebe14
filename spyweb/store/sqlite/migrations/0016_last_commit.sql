-- The number of the last commit.  It is noted beside the database too, so that a loss is noticed.
CREATE TABLE last_commit (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL
);
INSERT INTO last_commit VALUES (1, 1, 0);  -- the one that makes it
