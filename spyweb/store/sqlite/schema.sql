-- The schema of a new database: what all migrations together come to.  A test holds the two against each other.

CREATE TABLE entry (
    namespace  TEXT NOT NULL,
    key        BLOB NOT NULL,
    type       TEXT NOT NULL,
    value,
    expires_ms INTEGER,             -- NULL: never
    version    INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
);

CREATE TABLE run (
    id             INTEGER PRIMARY KEY,
    job            TEXT NOT NULL,
    state          TEXT NOT NULL,
    attempt        INTEGER NOT NULL,
    due_ms         INTEGER,         -- NULL: not from the schedule
    "trigger"      TEXT NOT NULL,   -- JSON
    start_after_ms INTEGER,
    started_ms     INTEGER,
    ended_ms       INTEGER,
    outcome        TEXT,
    failure        TEXT,
    reason         TEXT NOT NULL DEFAULT '',
    traceback      TEXT NOT NULL DEFAULT '',
    cpu_ms         INTEGER NOT NULL DEFAULT 0,
    storage_errors INTEGER NOT NULL DEFAULT 0,
    generation     INTEGER NOT NULL DEFAULT 0,
    last_due_ms    INTEGER,
    count          INTEGER NOT NULL DEFAULT 1,
    result         TEXT NOT NULL DEFAULT '',
    http_status    INTEGER,
    items_found    INTEGER,
    items_new      INTEGER,
    note           TEXT NOT NULL DEFAULT '',
    items_changed  INTEGER,
    stale_ms       INTEGER,         -- until when it may hold as the result of its job; NULL: it says nothing about it
    latency        INTEGER
);
CREATE INDEX run_of_job ON run (job, id);
CREATE UNIQUE INDEX run_once ON run (job, due_ms, attempt) WHERE due_ms IS NOT NULL AND last_due_ms IS NULL;
CREATE INDEX run_open ON run (id) WHERE state <> 'ended';

CREATE TABLE cursor (
    job           TEXT PRIMARY KEY,
    due_ms        INTEGER NOT NULL,
    schedule      TEXT NOT NULL,
    paused        INTEGER NOT NULL,
    idle_since_ms INTEGER,
    active_since_ms INTEGER,
    paused_for TEXT NOT NULL DEFAULT '',
    pool TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX entry_expiring ON entry (expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE past (
    namespace   TEXT NOT NULL,
    key         BLOB NOT NULL,
    version     INTEGER NOT NULL,
    type        TEXT NOT NULL,
    value,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    archived_ms INTEGER NOT NULL,    -- when it was replaced or deleted
    PRIMARY KEY (namespace, key, version)
);
CREATE INDEX past_by_age ON past (namespace, archived_ms);

CREATE TABLE lock (
    name        BLOB PRIMARY KEY,
    holder      BLOB NOT NULL,
    run         INTEGER,             -- NULL: not a run's
    acquired_ms INTEGER NOT NULL,
    expires_ms  INTEGER NOT NULL,
    lease_ms    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX lock_of_run ON lock (run) WHERE run IS NOT NULL;

CREATE TABLE event (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace   TEXT NOT NULL,
    key         BLOB NOT NULL,
    kind        TEXT NOT NULL,
    old_version INTEGER,             -- NULL: there was none
    old_type    TEXT,
    old_value,
    new_version INTEGER,             -- NULL: there is none any more
    new_type    TEXT,
    new_value,
    at_ms       INTEGER NOT NULL,
    job         TEXT,
    run         INTEGER,
    depth       INTEGER NOT NULL
);

CREATE TABLE seal (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    type    TEXT NOT NULL,
    value   BLOB NOT NULL
);

CREATE TABLE record (
    rev_ts  INTEGER PRIMARY KEY,
    job     TEXT NOT NULL,
    hash    BLOB NOT NULL,
    url     TEXT NOT NULL,           -- of the page
    fields  TEXT NOT NULL,           -- JSON, an object of texts
    matches TEXT NOT NULL,           -- JSON, an array of texts
    is_owed INTEGER NOT NULL DEFAULT 0,  -- 1: it is new, and not announced yet
    old     TEXT                     -- JSON, the tracked fields before they changed; NULL: the item was new
);
CREATE INDEX record_of_job ON record (job);
CREATE INDEX record_owed ON record (job) WHERE is_owed;

CREATE TABLE seen (
    job      TEXT NOT NULL,
    hash     BLOB NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms  INTEGER NOT NULL,       -- to the day
    tracked  TEXT,                   -- JSON, the tracked fields as seen last; NULL: none are tracked
    PRIMARY KEY (job, hash)
) WITHOUT ROWID;
CREATE INDEX seen_by_age ON seen (last_ms);

CREATE TABLE message (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    delivery   TEXT NOT NULL,        -- what a receiver knows it by
    job        TEXT NOT NULL,
    channel    TEXT NOT NULL,
    address    TEXT NOT NULL,
    headers    TEXT NOT NULL,        -- JSON, an array of pairs
    payload    BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_ms    INTEGER NOT NULL,     -- not before this moment
    holds      INTEGER NOT NULL DEFAULT 1,  -- 1: those behind it to the same address wait for it
    error      TEXT NOT NULL DEFAULT '',    -- of the last attempt
    dead_ms    INTEGER               -- when it was given up; NULL: it waits
);
CREATE INDEX message_waiting ON message (channel, address) WHERE dead_ms IS NULL;
CREATE INDEX message_dead ON message (dead_ms) WHERE dead_ms IS NOT NULL;

CREATE TABLE wanted (
    event INTEGER NOT NULL,
    job   TEXT NOT NULL,
    run   INTEGER,                   -- the latest that was claimed for it; NULL: none yet
    PRIMARY KEY (event, job)
) WITHOUT ROWID;
CREATE INDEX wanted_waiting ON wanted (job, event) WHERE run IS NULL;

CREATE TABLE task (
    run        INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,     -- in the order of the tasks' definition, from 0 on
    workflow   TEXT NOT NULL,        -- '': the file has none
    name       TEXT NOT NULL,
    status     TEXT NOT NULL,
    attempts   INTEGER NOT NULL,     -- 0: none was made, or it was made by the run that this one resumes
    started_ms INTEGER,              -- NULL: it was skipped for another task, and nobody asked its own condition
    ended_ms   INTEGER NOT NULL,
    message    TEXT NOT NULL DEFAULT '',
    output     BLOB,                 -- msgpack, a list of one value
    taken_from INTEGER,              -- the run that performed it, where this run has taken over the result
    PRIMARY KEY (run, ordinal)
) WITHOUT ROWID;

CREATE TRIGGER task_of_run AFTER DELETE ON run BEGIN
    DELETE FROM task WHERE run = old.id;
END;

CREATE TABLE plan (
    run  INTEGER PRIMARY KEY,
    plan BLOB NOT NULL               -- JSON: the tasks, their dependencies, and digests of the code
);

CREATE TRIGGER plan_of_run AFTER DELETE ON run BEGIN
    DELETE FROM plan WHERE run = old.id;
END;

CREATE TRIGGER plan_of_tasks AFTER DELETE ON task WHEN old.ordinal = 0 BEGIN
    DELETE FROM plan WHERE run = old.run;
END;

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

CREATE TABLE browser_session (
    hash       BLOB PRIMARY KEY,
    access_key INTEGER,              -- NULL: it signed in with SPYWEB_API_KEY, which the hash covers
    created_ms INTEGER NOT NULL,
    seen_ms    INTEGER NOT NULL      -- to the minute
) WITHOUT ROWID;

CREATE TRIGGER session_of_key AFTER DELETE ON access_key BEGIN
    DELETE FROM browser_session WHERE access_key = old.id;
END;

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
CREATE INDEX run_unsuccessful ON run (id) WHERE outcome <> 'success';

CREATE TABLE payload (
    run     INTEGER PRIMARY KEY,  -- the first attempt
    content BLOB NOT NULL         -- JSON
);

CREATE TABLE request (
    id          INTEGER PRIMARY KEY,
    scope       TEXT NOT NULL,    -- the job
    key         BLOB NOT NULL,    -- a hash of the Idempotency-Key
    fingerprint BLOB NOT NULL,    -- a hash of what was asked
    run         INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    UNIQUE (scope, key)
);

CREATE TABLE subject (
    name             TEXT PRIMARY KEY,  -- job:ID, channel:NAME, daemon:PART
    failures         INTEGER NOT NULL,  -- in a row
    successes        INTEGER NOT NULL,
    first_failure_ms INTEGER,
    signs            TEXT NOT NULL,     -- JSON: what is wrong -> [since_ms, text]
    openings         TEXT NOT NULL,     -- JSON: moments of the last ones, where flapping counts
    bad_ms           INTEGER,
    wake_ms          INTEGER,           -- when to look again
    silent_until_ms  INTEGER,
    silent_for_ms    INTEGER,           -- so that a clock that is set back does not lengthen it
    silent_by        TEXT NOT NULL DEFAULT '',
    is_pausing       INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE incident (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    subject     TEXT NOT NULL,
    level       TEXT NOT NULL,
    reason      TEXT NOT NULL,          -- the sign that opened it
    text        TEXT NOT NULL,
    run         INTEGER,                -- the run whose end opened it
    opened_ms   INTEGER NOT NULL,
    since_ms    INTEGER NOT NULL,       -- the first failure of the row
    closed_ms   INTEGER,
    acked_ms    INTEGER,
    acked_by    TEXT NOT NULL DEFAULT '',
    is_flapping INTEGER NOT NULL DEFAULT 0,
    notes       TEXT NOT NULL DEFAULT '[]',  -- JSON: its history, [at_ms, text] each
    is_settled  INTEGER NOT NULL DEFAULT 0,  -- 1: every channel has been notified
    closed_run  INTEGER                 -- the run whose end closed it
);
CREATE UNIQUE INDEX incident_open ON incident (subject) WHERE closed_ms IS NULL;
CREATE INDEX incident_unsettled ON incident (id) WHERE is_settled = 0;
CREATE INDEX incident_of_subject ON incident (subject, id);

CREATE TABLE told (
    incident  INTEGER NOT NULL,
    channel   TEXT NOT NULL,
    state     TEXT NOT NULL,
    remind_ms INTEGER,
    PRIMARY KEY (incident, channel)
) WITHOUT ROWID;

CREATE TRIGGER told_of_incident AFTER DELETE ON incident BEGIN
    DELETE FROM told WHERE incident = old.id;
END;

CREATE TABLE alert_channel (
    name    TEXT PRIMARY KEY,
    next_ms INTEGER,                    -- after a digest: not before
    sent    TEXT NOT NULL DEFAULT '[]'  -- JSON: moments of its messages in the last minute
) WITHOUT ROWID;

CREATE TABLE notice_key (
    job     TEXT NOT NULL,
    channel TEXT NOT NULL,
    key     BLOB NOT NULL,
    day     TEXT NOT NULL,              -- on which it was last sent, in the daemon's time zone
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (job, channel, key)
) WITHOUT ROWID;
CREATE INDEX notice_key_age ON notice_key (job, at_ms);

CREATE TABLE notice_pace (
    job  TEXT PRIMARY KEY,
    sent TEXT NOT NULL                  -- JSON: moments of its messages in the last minute
) WITHOUT ROWID;

CREATE TABLE notice_digest (
    job     TEXT NOT NULL,
    channel TEXT NOT NULL,
    is_held INTEGER NOT NULL,           -- by quiet hours
    message INTEGER NOT NULL,
    PRIMARY KEY (job, channel, is_held)
) WITHOUT ROWID;

CREATE TABLE maintenance (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    start_ms INTEGER NOT NULL,
    end_ms   INTEGER NOT NULL,
    jobs     TEXT NOT NULL,             -- JSON: ids and patterns; with no tags either: all jobs, and spyweb itself
    tags     TEXT NOT NULL,             -- JSON
    text     TEXT NOT NULL,
    by       TEXT NOT NULL
);

-- The results of jobs, in the order of their commits, until they are counted: then they are in the tables below.
CREATE TABLE sample (
    id       INTEGER PRIMARY KEY,
    job      TEXT NOT NULL,
    at_ms    INTEGER NOT NULL,
    up       INTEGER,                   -- NULL: nothing is known from then on
    stale_ms INTEGER NOT NULL,          -- nothing is known from then on
    latency  INTEGER                    -- of a success: the number of its bucket
);

CREATE TRIGGER sample_of_run AFTER UPDATE ON run WHEN new.stale_ms IS NOT NULL BEGIN
    INSERT INTO sample (job, at_ms, up, stale_ms, latency)
    VALUES (new.job, new.ended_ms, CASE new.outcome WHEN 'success' THEN 1 ELSE 0 END, new.stale_ms, new.latency);
END;

-- The sample of each job that was counted last, as for the time up to counted_ms.
CREATE TABLE standing (
    job        TEXT PRIMARY KEY,
    at_ms      INTEGER NOT NULL,
    up         INTEGER,
    stale_ms   INTEGER NOT NULL,
    counted_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- For how long jobs were up and down: what is counted so far of an hour, or a day, of UTC.
CREATE TABLE uptime (
    job        TEXT NOT NULL,
    unit       TEXT NOT NULL,           -- hour | day
    start_ms   INTEGER NOT NULL,
    up_ms      INTEGER NOT NULL,
    down_ms    INTEGER NOT NULL,
    excused_ms INTEGER NOT NULL,
    ok         INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    latency    TEXT NOT NULL,           -- JSON, an object: how many successes are in each bucket
    PRIMARY KEY (job, unit, start_ms)
) WITHOUT ROWID;

-- The ops of runs, by which these can be replayed.
CREATE TABLE recording (
    run  INTEGER NOT NULL PRIMARY KEY,
    job  TEXT NOT NULL,
    type TEXT NOT NULL,
    data BLOB NOT NULL           -- as a stored value is written: encrypted where there is a key
) WITHOUT ROWID;
CREATE INDEX recording_of_job ON recording (job, run);
CREATE TRIGGER recording_of_run AFTER DELETE ON run BEGIN
    DELETE FROM recording WHERE run = old.id;
END;

-- The schedules that jobs have had: what was due is computed from them, and compared with what is on record.
CREATE TABLE schedule (
    id       INTEGER PRIMARY KEY,
    job      TEXT NOT NULL,
    until_ms INTEGER NOT NULL,          -- up to here the due times of the row before count
    due_ms   INTEGER NOT NULL,          -- the cursor: after it those of this row count
    schedule TEXT NOT NULL,
    run      INTEGER NOT NULL           -- the newest of the job when it began: 0 for none
);
CREATE INDEX schedule_of_job ON schedule (job, id);

CREATE TRIGGER schedule_bounded AFTER INSERT ON schedule BEGIN
    DELETE FROM schedule WHERE job = new.job AND id <= (
        SELECT id FROM schedule WHERE job = new.job ORDER BY id DESC LIMIT 1 OFFSET 1000
    );
END;

-- Rows of runs up to which due time were deleted.
CREATE TABLE pruned (
    job    TEXT PRIMARY KEY,
    due_ms INTEGER NOT NULL             -- not above the cursor, which a clock that ran ahead has left
) WITHOUT ROWID;

CREATE TRIGGER pruned_of_run AFTER DELETE ON run WHEN old.due_ms IS NOT NULL BEGIN
    INSERT INTO pruned (job, due_ms) VALUES (old.job, min(
        coalesce(old.last_due_ms, old.due_ms), coalesce((SELECT due_ms FROM cursor WHERE job = old.job), old.due_ms)
    )) ON CONFLICT (job) DO UPDATE SET due_ms = max(pruned.due_ms, excluded.due_ms);
    DELETE FROM schedule WHERE job = old.job AND id < (
        SELECT max(id) FROM schedule WHERE job = old.job
            AND until_ms <= (SELECT due_ms FROM pruned WHERE job = old.job)
    );
END;
CREATE INDEX run_range ON run (job, last_due_ms) WHERE last_due_ms IS NOT NULL;

CREATE TABLE link_key (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    key BLOB NOT NULL
);

CREATE TABLE last_commit (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL
);
INSERT INTO last_commit VALUES (1, 1, 0);  -- the one that makes it
