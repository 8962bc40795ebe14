"""Any row of notices, with a crash before any statement: a key is told once a day, nothing is lost, and no job is too
loud for a minute."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.incidents.policy import Level
from spyweb.model import JobId, RunId
from spyweb.store.model.messages import Notice, NoticeFate
from spyweb.store.sqlite import notices
from spyweb.store.sqlite.migrate import load_migrations, migrate

DAY_MS, MINUTE_MS = 86_400_000, 60_000
QUIET_MS = 8 * 3_600_000  # the first of each day

Step = tuple[int, str, str, bytes, bool, int | None]  # wait, job, channel, key, critical, the fuse


class Crash(Exception):
    pass


class CrashingConnection(sqlite3.Connection):
    """Raises Crash before the statement at which its fuse has burnt down."""

    fuse: int | None = None

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise Crash
        return super().execute(*arguments)


@contextmanager
def database() -> Iterator[CrashingConnection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=CrashingConnection)) as connection:
        migrate(connection, Path(":memory:"), load_migrations(), 0)
        yield connection


def say(db: CrashingConnection, notice: Notice, now_ms: int, fuse: int | None) -> NoticeFate:
    """Add a notice as the writer does; a daemon that dies has told nothing, and its script says it again."""
    db.fuse = fuse
    while True:
        try:
            db.execute("BEGIN")
            fate = notices.add(db, notice, now_ms)
            db.execute("COMMIT")
        except Crash:
            if db.in_transaction:
                db.execute("ROLLBACK")
        else:
            db.fuse = None
            return fate


def deliver(db: CrashingConnection, now_ms: int) -> list[tuple[int, dict[str, Any]]]:
    """Take what is due out of the outbox."""
    due = db.execute("DELETE FROM message WHERE next_ms <= ? RETURNING next_ms, payload", (now_ms,)).fetchall()
    return [(at_ms, msgspec.json.decode(payload)) for at_ms, payload in due]


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 10, 1_000, 20_000, MINUTE_MS, 3_600_000, 9 * 3_600_000]),
        st.sampled_from(["backup", "shop"]),
        st.sampled_from(["phone", "ops"]),
        st.sampled_from([b"", b"", b"disk", b"cert"]),
        st.booleans(),
        st.none() | st.integers(0, 12),
    ),
    max_size=120,
)


@given(STEPS)
def test_a_key_is_told_once_a_day_nothing_is_lost_and_ten_a_minute_go_alone(steps: list[Step]) -> None:
    now_ms = 20_000 * DAY_MS
    fates: Counter[NoticeFate] = Counter()
    keyed: Counter[tuple[str, str, bytes, int]] = Counter()
    sent: list[tuple[int, dict[str, Any]]] = []
    alone: dict[str, list[int]] = {"backup": [], "shop": []}
    with database() as db:
        for wait_ms, job, channel, key, is_critical, fuse in steps:
            now_ms += wait_ms
            sent += deliver(db, now_ms)
            day, since_ms = divmod(now_ms, DAY_MS)
            notice = Notice(
                job=JobId(job),
                run=RunId(1),
                channel=channel,
                level=Level.CRITICAL if is_critical else Level.INFO,
                title="x",
                key=key,
                day=str(day),
                held_until_ms=None if is_critical or since_ms >= QUIET_MS else day * DAY_MS + QUIET_MS,
            )
            fate = say(db, notice, now_ms, fuse)
            fates[fate] += 1
            if key and fate is not NoticeFate.REPEATED:
                keyed[job, channel, key, day] += 1
            if fate is NoticeFate.QUEUED:
                alone[job].append(now_ms)
        sent += deliver(db, now_ms + DAY_MS)
        assert db.execute("SELECT count(*) FROM message").fetchone() == (0,)
    assert set(keyed.values()) <= {1}
    assert sum(facts["count"] for _, facts in sent) == sum(fates.values()) - fates[NoticeFate.REPEATED]
    for moments in alone.values():
        assert all(later - first >= MINUTE_MS for first, later in zip(moments, moments[10:], strict=False))
    for at_ms, facts in sent:
        told = [item["since_ms"] for item in facts["items"]]
        assert told == sorted(told)
        if facts["items"][0]["level"] != "critical" and told[0] % DAY_MS < QUIET_MS:
            assert at_ms % DAY_MS >= QUIET_MS, "quiet hours hold it"
        elif told[0] != at_ms:
            assert at_ms - told[0] <= MINUTE_MS


def thirty() -> tuple[int, int]:
    """Say twenty keys in a row, ten of them twice; return how many were repeated, and how many messages there are."""
    notice = Notice(job=JobId("a"), run=RunId(1), channel="b", level=Level.INFO, title="x", day="d")
    with database() as db:
        said = [say(db, msgspec.structs.replace(notice, key=b"%d" % (number % 20)), 0, None) for number in range(30)]
        return said.count(NoticeFate.REPEATED), len(deliver(db, MINUTE_MS))


def test_thirty_at_once_are_ten_and_a_digest() -> None:
    assert thirty() == (10, 11)


@pytest.mark.parametrize(("mutant", "answer"), [("take_key", True), ("find_digest", None)])
def test_a_mutant_is_found(mutant: str, answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, mutant, lambda *_: answer)
    assert thirty() != (10, 11)


def test_what_is_not_needed_any_more_is_pruned() -> None:
    with database() as db:
        for number in range(30):
            notice = Notice(job=JobId(f"j{number % 2}"), run=RunId(1), channel="b", level=Level.INFO, title="x")
            say(db, msgspec.structs.replace(notice, key=b"%d" % number, day="d"), number, None)
        deliver(db, 2 * MINUTE_MS)
        notices.prune(db, 100)
        tables = ("notice_key", "notice_pace", "notice_digest")
        assert [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables] == [0, 0, 0]
