-- The secret that signs the links in messages by which people acknowledge incidents.  It leaves the database nowhere.
CREATE TABLE link_key (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    key BLOB NOT NULL
);
