"""Notices of scripts, in every kind of store: a key once a day, ten messages a minute, and one of all that is more."""

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
from msgspec.structs import replace

from spyweb.incidents.policy import Level
from spyweb.model import JobId, RunId
from spyweb.store.model.messages import Channel, Notice, NoticeFate, QueuedMessage, Target
from spyweb.store.sqlite import outbox
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.migrate import load_migrations, migrate
from spyweb.store.sqlite.outbox import add_notice
from spyweb.store.sqlite.store import Store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import ENGINES
from tests.fakes.tables import Crash, CrashingConnection

STORES = ENGINES

PHONE = Target(Channel.ALERT, "phone")
QUEUED, HELD, GATHERED, REPEATED = NoticeFate.QUEUED, NoticeFate.HELD, NoticeFate.GATHERED, NoticeFate.REPEATED
NOTICE = Notice(job=JobId("backup"), run=RunId(7), channel="phone", level=Level.INFO, title="done", text="12 GB")


async def waiting(store: Store) -> list[QueuedMessage]:
    """Return the messages that wait, oldest first."""
    return list(reversed(await store.outbox.unsent(None, 1_000)))


def facts(message: QueuedMessage) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(message.payload)
    return found


async def test_a_notice_is_a_message_of_its_job_to_its_channel(store: Store, clock: FakeClock) -> None:
    heard: list[Target] = []
    store.outbox.on_committed(heard.extend)
    assert await store.outbox.notify(NOTICE) is QUEUED
    (message,) = await waiting(store)
    assert (message.target, message.job, message.next_ms) == (PHONE, "backup", clock.now_ms())
    found = facts(message)
    (item,) = found["items"]
    assert (found["channel"], found["count"]) == ("phone", 1)
    assert (item["kind"], item["title"], item["text"], item["level"]) == ("message", "done", "12 GB", "info")
    assert (item["incident"], item["subject"], item["run"]) == (None, "job:backup", 7)
    await clock.turn()
    assert heard == [PHONE]


async def test_a_key_is_told_once_a_day_on_each_channel(store: Store) -> None:
    keyed = replace(NOTICE, key=b"\xffdisk", day="2026-11-23")
    assert [await store.outbox.notify(keyed) for _ in range(3)] == [QUEUED, REPEATED, REPEATED]
    others = (
        replace(keyed, key=b"other"),
        replace(keyed, channel="ops"),
        replace(keyed, job=JobId("shop")),
        replace(keyed, day="2026-11-24"),
    )
    assert [await store.outbox.notify(each) for each in others] == [QUEUED] * 4
    assert len(await waiting(store)) == 5


async def test_of_the_keys_of_a_job_the_newest_are_known(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = replace(NOTICE, day="2026-11-23")
    monkeypatch.setattr(outbox, "MOST_KEYS", 5)
    for number in range(6):
        clock.advance(0.001)
        await store.outbox.notify(replace(keyed, key=b"%d" % number))
    assert await store.outbox.notify(replace(keyed, key=b"1")) is REPEATED
    assert await store.outbox.notify(replace(keyed, key=b"0")) is not REPEATED


async def test_what_is_more_than_ten_in_a_minute_is_one_message_at_its_end(store: Store, clock: FakeClock) -> None:
    began_ms = clock.now_ms()
    fates = []
    for number in range(40):
        fates.append(await store.outbox.notify(replace(NOTICE, title=f"n{number}", text="x" * 4_000)))
        clock.advance(1)
    assert fates == [QUEUED] * 10 + [GATHERED] * 30
    *single, digest = await waiting(store)
    assert (len(single), digest.next_ms) == (10, began_ms + 60_000)
    found = facts(digest)
    assert found["count"] == 30
    assert [item["title"] for item in found["items"]] == [f"n{number}" for number in range(10, 30)]
    assert len(digest.payload) < 20_000
    assert await store.outbox.notify(replace(NOTICE, job=JobId("shop"))) is QUEUED, "each job has its own minute"


async def test_after_the_minute_the_next_message_goes_alone_again(store: Store, clock: FakeClock) -> None:
    for _ in range(12):
        await store.outbox.notify(NOTICE)
    clock.advance(60)
    assert await store.outbox.notify(NOTICE) is QUEUED
    assert len(await waiting(store)) == 12


async def test_the_minute_is_that_of_all_channels_and_the_digest_that_of_each(store: Store) -> None:
    for _ in range(10):
        await store.outbox.notify(NOTICE)
    assert await store.outbox.notify(replace(NOTICE, channel="ops")) is GATHERED
    assert await store.outbox.notify(NOTICE) is GATHERED
    assert sorted(each.target.address for each in (await waiting(store))[10:]) == ["ops", "phone"]


async def test_a_digest_that_was_attempted_gathers_no_more(store: Store) -> None:
    for _ in range(11):
        await store.outbox.notify(NOTICE)
    *_, digest = await waiting(store)
    await store.outbox.put_off(digest.id, next_ms=digest.next_ms, error="x", holds=True)
    assert await store.outbox.notify(NOTICE) is GATHERED
    assert [facts(each)["count"] for each in await waiting(store)] == [1] * 12


async def test_what_quiet_hours_hold_is_one_message_at_their_end_and_others_pass_it(
    store: Store, clock: FakeClock
) -> None:
    end_ms = clock.now_ms() + 3_600_000
    held = replace(NOTICE, held_until_ms=end_ms)
    assert [await store.outbox.notify(replace(held, title=f"n{number}")) for number in range(30)] == [HELD] * 30
    (night,) = await waiting(store)
    assert (night.next_ms, night.created_ms, facts(night)["count"]) == (end_ms, end_ms, 30)
    assert await store.outbox.notify(replace(NOTICE, level=Level.CRITICAL, title="fire")) is QUEUED
    first = await store.outbox.next(PHONE, clock.now_ms())
    assert first
    assert facts(first)["items"][0]["title"] == "fire"
    assert await store.outbox.notify(replace(held, held_until_ms=end_ms + 1)) is HELD
    assert len(await waiting(store)) == 3, "of other quiet hours"


async def test_a_clock_that_is_set_back_has_no_notice_wait_longer_than_a_minute(store: Store, clock: FakeClock) -> None:
    for _ in range(11):
        await store.outbox.notify(NOTICE)
    clock.jump(-3_600)
    assert await store.outbox.notify(NOTICE) is QUEUED


async def test_pruning_forgets_old_keys_and_keeps_those_of_today(store: Store, clock: FakeClock) -> None:
    keyed = replace(NOTICE, key=b"disk", day="2026-11-23")
    await store.outbox.notify(keyed)
    await store.outbox.prune_notices(older_than_ms=clock.now_ms())
    assert await store.outbox.notify(keyed) is REPEATED
    await store.outbox.prune_notices(older_than_ms=clock.now_ms() + 1)
    assert await store.outbox.notify(keyed) is QUEUED


DAY_MS, MINUTE_MS = 86_400_000, 60_000
QUIET_MS = 8 * 3_600_000  # the first of each day

Step = tuple[int, str, str, bytes, bool, int | None]  # wait, job, channel, key, critical, the fuse


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
            fate = add_notice(db, notice, now_ms)
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


async def test_what_is_not_needed_any_more_is_pruned(store: Store, clock: FakeClock) -> None:
    for number in range(30):
        await store.outbox.notify(replace(NOTICE, job=JobId(f"j{number % 2}"), key=b"%d" % number, day="d"))
    for message in await waiting(store):
        await store.outbox.done(message.id)
    await store.outbox.prune_notices(older_than_ms=clock.now_ms() + 1)

    def count(connection: sqlite3.Connection) -> list[int]:
        tables = ("notice_key", "notice_pace", "notice_digest")
        return [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]

    assert await store._connections.writer.submit(OpKind.READ, count) == [0, 0, 0]
