-- Keys that let clients in, by the hash of the token that each was given; never the token itself.
CREATE TABLE access_key (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    handle     TEXT NOT NULL UNIQUE, -- the part of the token by which a key is found: no secret
    hash       BLOB NOT NULL,        -- SHA-256 of the token
    scopes     TEXT NOT NULL,        -- JSON, a list
    jobs       TEXT NOT NULL,        -- JSON, patterns of the jobs that it is limited to; none: all
    created_ms INTEGER NOT NULL,
    used_ms    INTEGER               -- to the minute; NULL: never
);

-- Browsers that have signed in, by the hash of the cookie.
CREATE TABLE browser_session (
    hash       BLOB PRIMARY KEY,
    access_key INTEGER,              -- NULL: it signed in with SPYWEB_API_KEY, which the hash covers
    created_ms INTEGER NOT NULL,
    seen_ms    INTEGER NOT NULL      -- to the minute
) WITHOUT ROWID;
CREATE TRIGGER session_of_key AFTER DELETE ON access_key BEGIN
    DELETE FROM browser_session WHERE access_key = old.id;
END;

-- What clients have done, or tried to; the newest 10,000.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY,
    at_ms   INTEGER NOT NULL,
    who     TEXT NOT NULL,
    source  TEXT NOT NULL,
    action  TEXT NOT NULL,
    job     TEXT NOT NULL,
    target  TEXT NOT NULL,
    status  INTEGER NOT NULL,
    address TEXT NOT NULL,
    times   INTEGER NOT NULL         -- that the line stands for
);
CREATE TRIGGER audit_bounded AFTER INSERT ON audit BEGIN
    DELETE FROM audit WHERE id <= new.id - 10000;
END;
