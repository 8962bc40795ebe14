-- The notices of scripts, by notify{…}: a key is sent once a day, and many in a minute are sent as one message.
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

-- The messages that still gather notices: those held by quiet hours, or too many for one minute.
CREATE TABLE notice_digest (
    job     TEXT NOT NULL,
    channel TEXT NOT NULL,
    is_held INTEGER NOT NULL,           -- by quiet hours
    message INTEGER NOT NULL,
    PRIMARY KEY (job, channel, is_held)
) WITHOUT ROWID;
