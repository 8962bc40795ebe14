-- What a request has sent along with a run, while that or an attempt after it has not ended; small ones are in the trigger.
CREATE TABLE payload (
    run     INTEGER PRIMARY KEY,  -- the first attempt
    content BLOB NOT NULL         -- JSON
);
-- The keys of requests that have started runs, each recorded with its run.
CREATE TABLE request (
    id          INTEGER PRIMARY KEY,
    scope       TEXT NOT NULL,    -- the job
    key         BLOB NOT NULL,    -- a hash of the Idempotency-Key
    fingerprint BLOB NOT NULL,    -- a hash of what was asked
    run         INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    UNIQUE (scope, key)
);
