-- The run that closed an incident; maintenance that was begun from the dashboard, the API or the command line.
ALTER TABLE incident ADD COLUMN closed_run INTEGER;
CREATE TABLE maintenance (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    start_ms INTEGER NOT NULL,
    end_ms   INTEGER NOT NULL,
    jobs     TEXT NOT NULL,  -- JSON: ids and patterns; with no tags either: all jobs, and spyweb itself
    tags     TEXT NOT NULL,  -- JSON
    text     TEXT NOT NULL,
    by       TEXT NOT NULL
);
