-- Subjects with failures, now or lately: a healthy subject has no row.
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
    silent_by        TEXT NOT NULL DEFAULT ''
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
    is_settled  INTEGER NOT NULL DEFAULT 0   -- 1: every channel has been notified
);
CREATE UNIQUE INDEX incident_open ON incident (subject) WHERE closed_ms IS NULL;
CREATE INDEX incident_unsettled ON incident (id) WHERE is_settled = 0;
CREATE INDEX incident_of_subject ON incident (subject, id);

-- What a notification channel knows of an incident: it moves from nothing to open to closed, or from nothing to spared.
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
