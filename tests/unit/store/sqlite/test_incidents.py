"""Any life of four subjects and three channels, with a crash before any statement: the truth is that of a brute
force over the events, what is told follows it, and no crash changes either.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spyweb.incidents import telling
from spyweb.incidents.policy import AlertPolicy, Escalation, Flapping, Level
from spyweb.incidents.truth import Event, Failed, SignGone, SignSeen, Succeeded, TimePassed
from spyweb.store.model.entries import Put
from spyweb.store.model.incidents import AlertChannelNow, SubjectEvent, SubjectNow
from spyweb.store.sqlite import incidents
from spyweb.store.sqlite.batch import execute_each
from spyweb.store.sqlite.migrate import load_migrations, migrate
from spyweb.store.sqlite.store import Store
from tests.fakes.clock import FakeClock
from tests.fakes.tables import Crash, CrashingConnection

MIN, HOUR_MS = 60_000, 3_600_000
PATIENCE = 10.0  # seconds; a deadline for a hang, not a measure

POLICIES = {
    "a": AlertPolicy(
        after_failures=2, to=("phone",), remind_ms=30 * MIN, escalations=(Escalation(10 * MIN, ("boss",)),)
    ),
    "b": AlertPolicy(after_failures=1, to=("phone", "ops"), depends_on=("a",), remind_ms=None),
    "c": AlertPolicy(
        after_failures=1, to=("ops",), level=Level.CRITICAL, flapping=Flapping(3, 20 * MIN), remind_ms=None
    ),
    "d": AlertPolicy(after_failures=3, after_successes=2, to=("phone",), recovered=False, remind_ms=None),
}
CHANNELS = ("phone", "ops", "boss")


@dataclass(frozen=True)
class Ack:
    pass


@dataclass(frozen=True)
class Silence:
    for_ms: int


Window = tuple[str, int, int]  # of a subject or channel, from, to
Happening = tuple[str, Event | Ack | Silence]
# Wait, what happens, the fuse, and whether it happens while somebody is about to be told something else.
Step = tuple[int, Happening | None, int | None, bool]


@dataclass
class World:
    maintenance: Sequence[Window]
    quiet: Sequence[Window]
    log: list[tuple[int, str, Event | Ack | Silence]] = field(default_factory=list)
    now: int = 0
    wake: int | None = None

    def __post_init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None, factory=CrashingConnection)
        migrate(self.db, Path(":memory:"), load_migrations(), 0)
        self.db.execute("CREATE TABLE done (token INTEGER PRIMARY KEY)")
        at_once = Mock(submit=lambda _kind, function, *arguments, **_: function(self.db, *arguments))
        self.incidents = incidents.Incidents(Mock(writer=at_once), Mock(now_ms=lambda: self.now), Mock())

    def within(self, windows: Sequence[Window], name: str, now: int) -> int | None:
        return max((end for each, begin, end in windows if each == name and begin <= now < end), default=None)

    def _commit(self, work: Callable[[], None]) -> None:
        self.db.execute("BEGIN")
        work()
        self.db.execute("COMMIT")

    def _roll_back(self) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def happen(self, token: int, name: str, event: Event | Ack | Silence) -> None:
        """Let something happen, once: it is tried until no crash is in its way."""

        def work() -> None:
            self._happen(name, event)
            self.db.execute("INSERT INTO done VALUES (?)", (token,))

        while True:
            try:
                if self.db.execute("SELECT 1 FROM done WHERE token = ?", (token,)).fetchone() is None:
                    self._commit(work)
                    self.log.append((self.now, name, event))
            except Crash:
                self._roll_back()
            else:
                return

    def _happen(self, name: str, event: Event | Ack | Silence) -> None:
        match event:
            case Ack():
                opened = self.db.execute(incidents.FIND_OPEN, (name,)).fetchone()
                if opened:
                    self.incidents.acknowledge(opened[0], "ada")
            case Silence(for_ms):
                self.incidents.silence(name, for_ms, "ada")
            case _:
                in_maintenance = self.within(self.maintenance, name, self.now) is not None
                happened = SubjectEvent(
                    subject=name, event=event, policy=POLICIES[name], at_ms=self.now, in_maintenance=in_maintenance
                )
                incidents.apply(self.db, happened)

    def look(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Do what the daemon does at a timer: look at what asks for it, and plan.

        What a crash meets is begun anew, as by the next daemon.  `meanwhile` is called between decision and write.
        """
        while True:
            try:
                self._look(meanwhile)
            except Crash:
                self._roll_back()
            else:
                return

    def _look(self, meanwhile: Callable[[], None] | None) -> None:
        for name, moment in self.db.execute(incidents.KNOWN).fetchall():
            if moment is not None and moment <= self.now:
                self._commit(lambda name=name: self._happen(name, TimePassed()))  # type: ignore[misc]
        channels = [
            AlertChannelNow(name=name, quiet_until_ms=self.within(self.quiet, name, self.now)) for name in CHANNELS
        ]
        subjects = {
            name: SubjectNow(policy=policy, maintenance_until_ms=self.within(self.maintenance, name, self.now))
            for name, policy in POLICIES.items()
        }
        wakes = []
        for channel in channels:
            planned = incidents.decide(self.db, channel, subjects, self.now)
            if meanwhile:
                meanwhile()
            self._commit(lambda: incidents.tell(self.db, channel.name, planned, self.now))  # noqa: B023 - called at once
            wakes.append(planned.wake_ms)
        settled = [(number,) for number in incidents.find_told_to_all(self.db, channels, subjects)]
        self._commit(lambda: execute_each(self.db, incidents.SETTLE, settled))
        moments = [*wakes, *dict(self.db.execute(incidents.KNOWN)).values()]
        self.wake = min((moment for moment in moments if moment is not None and moment > self.now), default=None)

    def go_to(self, moment: int) -> None:
        """Let time pass; nobody looks but when it was asked for."""
        for _ in range(5_000):
            if self.wake is None or self.wake > moment:
                break
            self.now = self.wake
            self.look()
        self.now = moment

    def dump(self) -> list[list[tuple[Any, ...]]]:
        tables = ("subject", "incident", "told", "alert_channel")
        return [self.db.execute(f"SELECT * FROM {table}").fetchall() for table in tables] + [
            self.db.execute("SELECT address, payload, created_ms FROM message").fetchall()
        ]


@contextmanager
def played(
    steps: Sequence[Step], maintenance: Sequence[Window], quiet: Sequence[Window], *, crashes: bool
) -> Iterator[World]:
    world = World(maintenance, quiet)
    with closing(world.db):
        live(world, steps, crashes=crashes)
        yield world


def live(world: World, steps: Sequence[Step], *, crashes: bool) -> None:
    for token, (wait, happens, fuse, is_meanwhile) in enumerate(steps):
        world.db.fuse = fuse if crashes else None
        world.go_to(world.now + wait)
        happen = partial(world.happen, token, *happens) if happens else None
        if happen and is_meanwhile:
            world.look(happen)
        elif happen:
            happen()
        world.look()
    world.db.fuse = None


def spans(world: World) -> dict[str, list[tuple[int, int | None]]]:
    """Say when something was wrong, by a brute force that knows only the events."""
    found = {name: list(spans_of(world, name)) for name in POLICIES}
    return {name: of_subject for name, of_subject in found.items() if of_subject}


def spans_of(world: World, name: str) -> Iterator[tuple[int, int | None]]:
    flapping = POLICIES[name].flapping
    opened: int | None = None
    openings, calm = list[int](), 0  # where it flaps: it is not over before
    last, signs = 0, set[str]()
    for now, signs_now, bad in signs_over_time(world, name):
        if opened is not None and not signs and calm <= now:
            yield opened, max(calm, last)
            opened = None
        last, signs = now, signs_now
        if signs and opened is None:
            opened, calm = now, 0
            openings.append(now)
        if bad and flapping and is_flapping(openings, flapping):
            calm = now + flapping.within_ms
    if opened is not None:
        yield opened, None if signs or world.now < calm else max(calm, last)


def signs_over_time(world: World, name: str) -> Iterator[tuple[int, set[str], bool]]:
    """Yield what is wrong after each event, and whether that was a bad one."""
    failures, successes, signs = 0, 0, set[str]()
    for now, subject, event in world.log:
        is_hidden = world.within(world.maintenance, name, now) is not None
        if subject != name or (is_hidden and isinstance(event, Failed | SignSeen)):
            continue
        if isinstance(event, Failed | Succeeded):
            failed = isinstance(event, Failed)
            failures, successes = (failures + 1, 0) if failed else (0, successes + 1)
        before = signs
        signs = signs_after(signs, event, POLICIES[name], failures, successes, is_hidden=is_hidden)
        if signs and not before:
            successes = 0
        yield now, signs, is_bad(event, is_hidden=is_hidden)


def is_bad(event: Event | Ack | Silence, *, is_hidden: bool) -> bool:
    return isinstance(event, Failed | SignSeen) or (
        isinstance(event, Succeeded) and bool(event.signs) and not is_hidden
    )


def is_flapping(openings: Sequence[int], flapping: Flapping) -> bool:
    """Tell whether the newest opening is one of so many in that time."""
    return sum(openings[-1] - flapping.within_ms < each for each in openings) >= flapping.openings


def signs_after(
    signs: set[str],
    event: Event | Ack | Silence,
    policy: AlertPolicy,
    failures: int,
    successes: int,
    *,
    is_hidden: bool,
) -> set[str]:
    match event:
        case Failed(_, shown):
            return signs | shown.keys() | ({"failing"} if failures >= policy.after_failures else set())
        case Succeeded(shown):
            gone = {"silent", "empty", "storage", "drift"} | (
                {"failing"} if successes >= policy.after_successes else set()
            )
            return signs - (gone - shown.keys()) | (set() if is_hidden else shown.keys())
        case SignSeen(sign):
            return signs | {sign}
        case SignGone(sign):
            return signs - {sign}
        case _:
            return signs


def told_items(world: World) -> dict[tuple[int, str], list[tuple[str, int]]]:
    found = defaultdict(list)
    for channel, payload, at_ms in world.db.execute("SELECT address, payload, created_ms FROM message ORDER BY id"):
        for item in msgspec.json.decode(payload)["items"]:
            found[item["incident"], channel].append((item["kind"], at_ms))
    return found


def is_silent(world: World, name: str, moment: int) -> bool:
    silences = [
        (now, event.for_ms) for now, subject, event in world.log if subject == name and isinstance(event, Silence)
    ]
    before = [each for each in silences if each[0] < moment]
    return bool(before) and moment < sum(before[-1])


def check_told(world: World) -> None:
    """Check each incident on each channel: what it was told, in which order, and never while that was held."""
    items = told_items(world)
    is_open = {subject for (subject,) in world.db.execute("SELECT subject FROM incident WHERE closed_ms IS NULL")}
    rows = world.db.execute("SELECT id, subject, opened_ms, closed_ms, acked_ms FROM incident").fetchall()
    for number, name, opened_ms, closed_ms, acked_ms in rows:
        policy = POLICIES[name]
        for channel in CHANNELS:
            told = items.get((number, channel), [])
            kinds = [kind for kind, _ in told if kind != "reminder"]
            assert kinds in ([], ["opened"], ["opened", "closed"], ["was"])
            if len(told) > len(kinds):
                assert policy.remind_ms
                assert told[0][0] == "opened"
            for kind, at_ms in told:
                assert not is_silent(world, name, at_ms)
                assert not (acked_ms is not None and acked_ms < at_ms and kind in ("opened", "reminder"))
                assert world.within(world.maintenance, name, at_ms) is None
                assert policy.level is Level.CRITICAL or world.within(world.quiet, channel, at_ms) is None
            after_ms = policy.notifies(channel)
            if after_ms is None:
                assert not told
                continue
            held = not is_open.isdisjoint(policy.depends_on) or is_silent(world, name, world.now)
            if closed_ms is None and acked_ms is None and not held and world.now > opened_ms + after_ms + MIN:
                assert kinds == ["opened"]
            if closed_ms is not None and "opened" in kinds and not held:
                assert kinds == (["opened", "closed"] if policy.recovered else ["opened"])


def check_moments(world: World) -> None:
    """Check that nothing is told before its time, nor while something else that it depends on is wrong."""
    rows = world.db.execute("SELECT id, subject, opened_ms, closed_ms FROM incident").fetchall()
    items = told_items(world)
    for number, name, opened_ms, _ in rows:
        parents = [(begin, end) for _, each, begin, end in rows if each in POLICIES[name].depends_on]
        for channel in CHANNELS:
            after_ms = POLICIES[name].notifies(channel)
            for _, at_ms in items.get((number, channel), []):
                assert after_ms is not None
                assert at_ms >= opened_ms + after_ms
                assert not any(begin < at_ms and (end is None or at_ms < end) for begin, end in parents)


def check_reminders(world: World) -> None:
    """Check that an incident that stays open is told again every so often, unless something held that."""
    items = told_items(world)
    for number, opened_ms, closed_ms, acked_ms in world.db.execute(
        "SELECT id, opened_ms, closed_ms, acked_ms FROM incident WHERE subject = 'a'"
    ).fetchall():
        told = items.get((number, "phone"), [])
        if not told or told[0][0] != "opened" or acked_ms is not None:
            continue
        end = closed_ms or world.now
        assert opened_ms <= told[0][1]
        moments = [at_ms for kind, at_ms in told if kind != "closed"] + [end]
        for earlier, later in pairwise(moments):
            assert later - earlier <= 32 * MIN or is_held_between(world, earlier, later)


def is_held_between(world: World, begin: int, end: int) -> bool:
    windows = [*world.maintenance, *world.quiet]
    silences = [
        ("a", now, now + each.for_ms) for now, name, each in world.log if name == "a" and isinstance(each, Silence)
    ]
    return any(first < end and last > begin for _, first, last in [*windows, *silences])


minutes = st.one_of(st.integers(0, 15 * MIN), st.integers(0, 2 * MIN))
subject_events = st.one_of(
    st.sampled_from(
        [
            Succeeded(),
            Succeeded({"empty": "no items"}),
            Failed("x"),
            Failed("x"),
            Failed("x", {"storage": "1 error"}),
            Ack(),
            SignSeen("late", ""),
            SignGone("late"),
            SignSeen("empty", ""),
            SignGone("empty"),
            TimePassed(),
        ]
    ),
    st.integers(1, 40).map(lambda count: Silence(count * MIN)),
)
lives = st.lists(
    st.tuples(
        minutes,
        st.one_of(st.none(), st.tuples(st.sampled_from("abcd"), subject_events)),
        st.one_of(st.none(), st.integers(0, 40)),
        st.booleans(),
    ),
    max_size=45,
)


def windows_of(names: Sequence[str]) -> st.SearchStrategy[list[Window]]:
    window = st.tuples(st.sampled_from(names), st.integers(0, 300 * MIN), st.integers(1, 90 * MIN))
    return st.lists(window.map(lambda each: (each[0], each[1], each[1] + each[2])), max_size=3)


def examine(steps: Sequence[Step], maintenance: Sequence[Window], quiet: Sequence[Window]) -> None:
    with (
        played(steps, maintenance, quiet, crashes=False) as calm,
        played(steps, maintenance, quiet, crashes=True) as world,
    ):
        assert calm.dump() == world.dump()
        check_truth(world)
        world.go_to(max([world.now, *(end for *_, end in [*maintenance, *quiet])]) + 200 * MIN)
        check_told(world)
        check_reminders(world)
        become_well(world)
        check_told(world)
        check_moments(world)
        assert world.db.execute("SELECT count(*) FROM incident WHERE is_settled = 0").fetchone() == (0,)
        assert world.db.execute("SELECT count(*) FROM subject WHERE signs <> '{}' OR failures > 0").fetchone() == (0,)


def check_truth(world: World) -> None:
    recorded = defaultdict(list)
    for name, opened_ms, closed_ms in world.db.execute(
        "SELECT subject, opened_ms, closed_ms FROM incident ORDER BY id"
    ):
        recorded[name].append((opened_ms, closed_ms))
    assert recorded == spans(world)


def become_well(world: World) -> None:
    well: tuple[Event, ...] = (Succeeded(), SignGone("empty"), SignGone("late"))
    for token in range(12):
        world.go_to(world.now + 30 * MIN)
        for offset, event in enumerate(well):
            world.happen(10_000 + 3 * token + offset, "abcd"[token % 4], event)
        world.look()
    world.go_to(world.now + 300 * MIN)


@settings(suppress_health_check=list(HealthCheck))
@given(lives, windows_of("abcd"), windows_of(CHANNELS))
def test_what_is_told_follows_what_is_true_whatever_happens_and_wherever_it_crashes(
    steps: list[Step], maintenance: list[Window], quiet: list[Window]
) -> None:
    examine(steps, maintenance, quiet)


FAIL, WAIT = Failed("x"), (10 * MIN, None, None, False)
HOUR: Sequence[Window] = [("b", 0, 60 * MIN)]
QUIET_HOUR: Sequence[Window] = [("phone", 0, 60 * MIN)]


def lived(*events: tuple[str, Event | Ack | Silence]) -> list[Step]:
    return [*((MIN, event, None, False) for event in events), WAIT]


FLAPPING = lived(*(("c", event) for event in (FAIL, Succeeded()) * 3))

# Lives in which a forgotten rule shows: which failures count, flapping, and each thing that holds a message.
LIVES: list[tuple[list[Step], Sequence[Window], Sequence[Window]]] = [
    (lived(("b", FAIL)), HOUR, []),
    (lived(("a", FAIL), ("a", Succeeded()), ("a", FAIL)), [], []),
    (lived(("b", SignSeen("late", "")), ("b", SignSeen("empty", "")), ("b", SignGone("late"))), [], []),
    ([*FLAPPING, (30 * MIN, None, None, False)], [], []),
    (lived(("a", FAIL), ("a", FAIL), ("b", FAIL)), [], []),
    (lived(("b", FAIL)), [("b", MIN + 1, 60 * MIN)], QUIET_HOUR),
    (lived(("b", Silence(60 * MIN)), ("b", FAIL)), [], QUIET_HOUR),
    ([*((0, ("a", event), None, False) for event in (FAIL, FAIL, Ack())), WAIT], [], []),
]


@pytest.mark.parametrize(("steps", "maintenance", "quiet"), LIVES)
def test_each_rule_has_a_life_that_needs_it(
    steps: list[Step], maintenance: Sequence[Window], quiet: Sequence[Window]
) -> None:
    examine(steps, maintenance, quiet)


AT_ONCE = AlertPolicy(after_failures=1, to=("phone",))


async def note(store: Store, clock: FakeClock, event: Event, jobs: int = 1) -> dict[str, SubjectNow]:
    """Have it happen to so many jobs; return what is known of them ten seconds later."""
    subjects = [f"job:{number}" for number in range(jobs)]
    await store.incidents.note(
        [SubjectEvent(subject=each, event=event, policy=AT_ONCE, at_ms=clock.now_ms()) for each in subjects]
    )
    clock.advance(10)
    return {each: SubjectNow(policy=AT_ONCE) for each in subjects}


async def test_a_write_does_not_wait_while_it_is_decided_who_is_told(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_written = threading.Event()

    plan = telling.plan

    def slow(*arguments: Any) -> Any:
        assert is_written.wait(PATIENCE)
        return plan(*arguments)

    subjects = await note(store, clock, FAIL)
    monkeypatch.setattr(telling, "plan", slow)
    planning = asyncio.ensure_future(store.incidents.plan([AlertChannelNow(name="phone")], subjects))
    await store.values.transform("job:a", b"n", lambda _: Put(b"1"))
    is_written.set()
    assert (await planning).messages == 1


async def test_more_incidents_that_are_over_than_one_write_takes_are_settled(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "SETTLED_AT_ONCE", 2)
    await note(store, clock, FAIL, jobs=5)
    subjects = await note(store, clock, Succeeded(), jobs=5)
    await store.incidents.plan([AlertChannelNow(name="phone")], subjects)
    assert await store.incidents.unsettled() == []
