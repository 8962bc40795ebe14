"""The SQL of spyweb/store/sqlite on PostgreSQL: each text is understood, and none that is hot reads a whole table."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from spyweb.store import sqlite
from spyweb.store.model.messages import Channel
from spyweb.store.postgres.server import PgServer, PgSession
from spyweb.store.postgres.texts import translate
from spyweb.store.sqlite import (
    entries,
    events,
    incidents,
    outbox,
    past_runs,
    records,
    runs,
    scanning,
    tasks,
    uptime,
    values,
)

SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|REPLACE)\b")
OF_SQLITE_ALONE = {"batch", "checkpoints", "damage", "migrate", "vault"}
FRAGMENTS = {runs.EACH_JOB}
FAR = (1 << 63) - 1

# 60,000 runs of 600 jobs, and tables beside them that would take long to read whole.
FILL = """
    INSERT INTO run (job, state, attempt, due_ms, "trigger", started_ms, ended_ms, outcome)
        SELECT 'job' || (g % 600), 'ended', 1, g, '{"type":"schedule"}', g, g + 5,
            CASE WHEN g % 100 = 0 THEN 'failed' ELSE 'success' END FROM generate_series(1, 60000) g;
    INSERT INTO cursor SELECT 'job' || g, g, 'every 1s', 0 FROM generate_series(1, 5000) g;
    INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
        SELECT 'job:' || (g % 600), convert_to('k' || g, 'UTF8'), 't', 'x', CASE WHEN g % 10 = 0 THEN g END, 1, g, g
        FROM generate_series(1, 40000) g;
    INSERT INTO past (namespace, key, version, type, value, created_ms, updated_ms, archived_ms)
        SELECT 'job:' || (g % 600), convert_to('k' || g, 'UTF8'), 1, 't', 'x', g, g, g FROM generate_series(1, 20000) g;
    INSERT INTO record (rev_ts, job, hash, url, fields, matches, is_owed)
        SELECT g, 'job' || (g % 600), 'x', '', '{}', '[]', CASE WHEN g % 500 = 0 THEN 1 ELSE 0 END
        FROM generate_series(1, 20000) g;
    INSERT INTO seen SELECT 'job' || (g % 600), convert_to('k' || g, 'UTF8'), g, g FROM generate_series(1, 20000) g;
    INSERT INTO message (delivery, job, channel, address, headers, payload, created_ms, next_ms, dead_ms)
        SELECT g, 'job', 'webhook', 'a' || (g % 50), '[]', '{}', g, g, CASE WHEN g % 100 <> 0 THEN g END
        FROM generate_series(1, 10000) g;
    INSERT INTO event (namespace, key, kind, at_ms, depth) SELECT 'state', 'k', 'created', g, 0
        FROM generate_series(1, 10000) g;
    INSERT INTO wanted SELECT g, 'job' || (g % 600), CASE WHEN g % 500 <> 0 THEN g END FROM generate_series(1, 10000) g;
    INSERT INTO task SELECT g, 0, '', 'a', 'done', 1, g, g FROM generate_series(1, 10000) g;
    INSERT INTO incident (subject, level, reason, text, opened_ms, since_ms, closed_ms, is_settled)
        SELECT 'job:' || g, 'warning', '', '', g, g, CASE WHEN g % 500 <> 0 THEN g END, CASE WHEN g % 500 <> 0 THEN 1
            ELSE 0 END FROM generate_series(1, 10000) g;
    INSERT INTO told SELECT g, 'mail', 'open' FROM generate_series(1, 10000) g;
    INSERT INTO subject SELECT 'job:' || g, 0, 0, NULL, '{}', '[]' FROM generate_series(1, 5000) g;
    INSERT INTO lock SELECT convert_to('k' || g, 'UTF8'), 'x', g, g, g, g FROM generate_series(1, 5000) g;
    INSERT INTO uptime SELECT 'job' || (g % 600), CASE WHEN g % 3 = 0 THEN 'day' ELSE 'hour' END, g, 1, 1, 1, 1, 1, '{}'
        FROM generate_series(1, 60000) g;
    INSERT INTO standing SELECT 'job' || g, 1, 1, 1, 1 FROM generate_series(1, 5000) g;
    INSERT INTO schedule (job, until_ms, due_ms, schedule, run) SELECT 'job' || g, g, g, 'never', 0
        FROM generate_series(1, 5000) g;
    INSERT INTO request (scope, key, fingerprint, run, at_ms)
        SELECT 'job', convert_to('k' || g, 'UTF8'), 'x', g, g FROM generate_series(1, 5000) g;
"""
KEY = {"namespace": "job:5", "now_ms": 1}
HOT: dict[str, tuple[str, Any]] = {
    "an entry": (entries.FIND, ("job:5", b"k5")),
    "an expired entry": (entries.DELETE_EXPIRED, ("job:5", b"k5", 1)),
    "past versions": (scanning.HISTORY, ("job:5", b"k5", 3)),
    "what is beyond its history": (entries.FORGET_BEYOND, ("job:5", b"k5", 3)),
    "keys": (f"SELECT key {scanning.WITHIN_PREFIX} ORDER BY key", KEY | {"least": b"k", "beyond": b"l"}),
    "namespaces": (values.NAMESPACES, {"least": "job:", "now_ms": 1}),
    "expired entries": (values.EXPIRED, (150, 200)),
    "how many have expired": (values.COUNT_EXPIRED, (150,)),
    "a page of an export": (scanning.PAGE, {"after": 30000, "now_ms": 1, "namespaces": None, "limit": 500}),
    "a cursor": (runs.FIND_CURSOR, ("job5",)),
    "several cursors": (runs.FIND_CURSORS, ('["job5", "job6"]',)),
    "the end of a run": (
        runs.END_RUN,
        (1, "success", None, "", "", 0, 0, "", None, None, None, None, "", None, None, 500),
    ),
    "open runs": (runs.OPEN_RUNS, ()),
    "the newest row of a job": (runs.NEWEST_ROW, ("job5",)),
    "the latest run of each job": (runs.LATEST_RUNS, ()),
    "the last success of each job": (runs.SUCCEEDED, ()),
    "runs beyond those that are kept": (runs.FIRST_BEYOND, ("job5", 90)),
    "outdated runs": (runs.OUTDATED, ("job5", 500, 500, 200)),
    "a known request": (runs.FIND_REQUEST, ("job", b"k5")),
    "a strip": (past_runs.STRIP, ("job5", 1000, 60)),
    "a series of failures": (past_runs.SERIES_OF_JOB, ("job5",)),
    "points": (past_runs.DURATIONS, ("job5", FAR, FAR, 0, 100)),
    "latencies": (past_runs.LATENCIES, ("job5", FAR, FAR, 0, 100)),
    "the run before": (past_runs.BEFORE, ("job5", 30000)),
    "the schedules of a job": (past_runs.STEPS, ("job5",)),
    "rows about due times": (past_runs.DUE_ROWS, ("job5", 100, 200, 1000, 50)),
    "followers": (past_runs.FOLLOWERS, (50000, 20)),
    "unsuccessful runs": ("SELECT id FROM run WHERE outcome <> 'success' AND id < ? ORDER BY id DESC LIMIT 9", (FAR,)),
    "waiting changes": (events.WANTED, ("", 0, 100)),
    "the next target": (outbox.NEXT_TARGET, ("", "")),
    "messages to a target": (f"{outbox.TO_TARGET} ORDER BY next_ms, id LIMIT 1", (Channel.WEBHOOK.value, "a1")),
    "how many messages wait": (outbox.BACKLOG, ()),
    "records of a job": (records.OF_JOB, ("job5", -1, FAR, 30)),
    "records to be announced": (records.OWED, ("job5", 30)),
    "seen items": (records.SEEN, ("job5", *[b"k5"] * records.ASKED_AT_ONCE)),
    "items not seen for long": (records.UNSEEN, (100, 200)),
    "tasks of a run": (tasks.OF_RUN, (500,)),
    "an open incident": (incidents.FIND_OPEN, ("job:5",)),
    "incidents to tell of": (incidents.TO_TELL, ("mail",)),
    "open incidents": (incidents.LIST_OPEN, (None, FAR, 30, 0)),
    "a subject": (incidents.FIND_SUBJECT, ("job:5",)),
    "standing results": (uptime.FIND_STANDING, ('["job5", "job6"]',)),
    "an hour of a job": (uptime.FIND_SPAN, ("job5", "hour", 5)),
    "a span of uptime": (uptime.SPAN, ('["job5", "job6"]', 100, 200, 60000)),
    "days of uptime": (uptime.OF_DAYS, ('["job5"]', 100, 60000)),
    "uptime that is too old": (uptime.DELETE_SPANS, ('["job5", "job6"]', "hour", 500)),
    "locks of a run": ("DELETE FROM lock WHERE run = ? RETURNING name", (5,)),
}


@pytest.fixture
def session(server: PgServer) -> Iterator[PgSession]:
    with server.connect() as session:
        yield session


def texts_of(module: str) -> set[str]:
    """Return the texts that a module makes when it is imported, and those that stand in its functions."""
    path = Path(sqlite.__file__).parent / f"{module}.py"
    tree = ast.parse(path.read_text())
    parts = {id(part) for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for part in text.values}
    written: list[Any] = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in parts
    ]
    made = list(vars(importlib.import_module(f"spyweb.store.sqlite.{module}")).values())
    made += [text for texts in made if isinstance(texts, list | tuple) for text in texts]
    return {
        text
        for text in written + made
        if isinstance(text, str) and SQL.match(text) and "{" not in text.replace("'{}'", "")
    }


def test_postgresql_understands_every_text_of_the_store(session: PgSession) -> None:
    modules = {path.stem for path in Path(sqlite.__file__).parent.glob("*.py")} - OF_SQLITE_ALONE - {"__init__"}
    texts = {text for module in modules for text in texts_of(module)} - FRAGMENTS
    refused = {}
    for text in texts:
        try:
            session.execute(f"PREPARE asked AS {translate(text).text}")
            session.execute("DEALLOCATE asked")
        except psycopg.Error as error:
            refused[text] = str(error)

    assert refused == {}
    assert len(texts) > 150


def test_no_hot_text_reads_a_whole_table(session: PgSession) -> None:
    for statement in FILL.split(";\n"):
        session.execute(statement.encode())
    session.execute("ANALYZE")

    plans = {}
    for name, (text, parameters) in HOT.items():
        translated = translate(text)
        asked = [parameters[each] for each in translated.names] if isinstance(parameters, dict) else parameters
        rows = session.execute(f"EXPLAIN {translated.text}".encode(), asked).fetchall()
        plans[name] = "\n".join(row[0] for row in rows)

    assert {name: plan for name, plan in plans.items() if "Seq Scan" in plan} == {}
