"""The whole of `state`, as scripts call it, against a plain model: entries, expiry, lists, history and locks."""

from __future__ import annotations

import asyncio
import math
import re
from asyncio import Task
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spyweb.lua.wire import Foreign
from spyweb.model import HistoryRule, JobId, Outcome, RunId, RunState, Trigger
from spyweb.ops.world import Call, World
from spyweb.store.model.entries import Held
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import ask, make_call, make_world

T = TypeVar("T")

VERSIONS_KEPT = 3
DECIMAL = re.compile(rb"[0-9]+(\.[0-9]+)?")
SMALLEST, LARGEST = -(2**63), 2**63 - 1
KEYS = st.sampled_from([b"a", b"user:1"])  # few, so that steps meet
PATTERNS = st.sampled_from([b"*", b"a", b"?", b"user:*", b"*1", b"[a]"])
NUMBERS = st.sampled_from([0, 1, -2, 0.5, -1.25, 3.0, LARGEST, SMALLEST, 2**62, 1e300])
TEXTS = st.sampled_from([b"", b"x", b"41", b"1.5", b"\xff"])
LOOK_ALIKES = st.sampled_from([1, 1.0, True, b"1", 0, False, b"", {}, [1], [True], {b"x": 0}, {b"x": False}])
SCALARS = st.one_of(NUMBERS, TEXTS, st.booleans())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(st.sampled_from([b"x", b"y"]), inner, max_size=2),
        st.builds(list),
    ),
    max_leaves=4,
)
TTLS = st.sampled_from([None, -1, 0, 0.5, 10, 60])
RUNS = st.integers(0, 3)
LOCKS = st.sampled_from([b"door", b"door", b"window"])
HOLDERS = st.sampled_from([None, b"task-1", b"task-2"])


def plain_number(number: float) -> int | float:
    is_whole = isinstance(number, float) and number.is_integer() and SMALLEST <= number <= LARGEST
    return int(number) if is_whole else number


def plain(value: object) -> object:
    """As it is kept: integral floats as integers, an empty array as one."""
    match value:
        case bool():
            return value
        case float():
            return plain_number(value)
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case Foreign():
            return []
        case _:
            return value


def same(left: object, right: object) -> bool:
    """Deeply, and with types: 1 is not true.  An empty array is an empty table."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list | dict) and isinstance(right, list | dict) and not left and not right:
        return True
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


@dataclass
class Kept:
    value: object
    expires_ms: int | None
    version: int


@dataclass
class Model:
    """What is kept, in a dictionary; an expired entry stays in it until it is written over."""

    now_ms: int
    entries: dict[bytes, Kept] = field(default_factory=dict)
    past: dict[bytes, list[tuple[int, object]]] = field(default_factory=dict)  # oldest first

    def live(self, key: bytes) -> Kept | None:
        kept = self.entries.get(key)
        return kept if kept and (kept.expires_ms is None or kept.expires_ms > self.now_ms) else None

    def value(self, key: bytes) -> object:
        kept = self.live(key)
        return kept.value if kept else None

    def expiry(self, ttl: float | None) -> int | None:
        return None if ttl is None else self.now_ms + math.ceil(max(ttl, 0) * 1000)

    def put(self, key: bytes, value: object, expires_ms: int | None) -> None:
        past = self.past.get(key, [])
        last = self.entries[key].version if key in self.entries else past[-1][0] if past else 0
        self._archive(key)
        self.entries[key] = Kept(value, expires_ms, last + 1)

    def change(self, key: bytes, value: object) -> None:
        """Its expiry stays."""
        live = self.live(key)
        self.put(key, value, live.expires_ms if live else None)

    def drop(self, key: bytes) -> None:
        self._archive(key)
        self.entries.pop(key, None)

    def _archive(self, key: bytes) -> None:
        live = self.live(key)
        if live:
            self.past[key] = [*self.past.get(key, []), (live.version, live.value)][-VERSIONS_KEPT:]

    def matching(self, pattern: bytes = b"*") -> list[bytes]:
        literal = pattern.decode("latin-1").replace("[", "[[]")
        live = (key for key in self.entries if self.live(key))
        return sorted(key for key in live if fnmatchcase(key.decode("latin-1"), literal))

    def versions(self, key: bytes) -> list[tuple[int, object]]:
        live = self.live(key)
        return ([(live.version, live.value)] if live else []) + self.past.get(key, [])[::-1]


def number_in(value: object) -> int | float | None:
    match value:
        case None:
            return 0
        case bool():
            return None
        case bytes():
            if value.isdigit() and len(value) < 19:
                return int(value)
            return plain_number(float(value)) if DECIMAL.fullmatch(value) else None
        case int() | float():
            return value
        case _:
            return None


def list_in(value: object) -> list[object] | None:
    if value is None or value == {}:
        return []
    return value if isinstance(value, list) else None


@dataclass
class Waiting:
    run: int  # which of the four
    deadline_ms: int
    task: Task[Sequence[object]]


class Machine(RuleBasedStateMachine):
    """A world of its own, on a loop and a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock, history={"state": HistoryRule(versions=VERSIONS_KEPT)})
        self.world = self.do(self._make_world())

    async def _make_world(self) -> World:
        return make_world(store=self.store, clock=self.clock)

    def teardown(self) -> None:
        self.do(self.clock.turn())
        self.loop.close()

    def do(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    def ask_as(self, call: Call, name: str, *arguments: object) -> object:
        """The first result; what comes after it is a text that says why."""
        first, *rest = self.do(ask(call, f"state.{name}", *arguments))
        assert not rest or first in (None, False, -1, 0, True), rest
        return first


class Values(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.clock.now_ms())
        self.scopes: dict[bytes, object] = {}
        self.call = make_call(self.world)

    def ask(self, name: str, *arguments: object) -> object:
        return self.ask_as(self.call, name, *arguments)

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def set_value(self, key: bytes, value: object, ttl: float | None) -> None:
        self.set(key, value, ttl)

    def set(self, key: bytes, value: object, ttl: float | None) -> None:
        assert self.ask("set", key, value, ttl) is True
        self.model.put(key, plain(value), self.model.expiry(ttl))

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        assert self.ask("delete", key) is True
        self.model.drop(key)

    @rule(pattern=PATTERNS)
    def clear(self, pattern: bytes) -> None:
        assert self.ask("clear", pattern) is True
        for key in self.model.matching(pattern):
            self.model.drop(key)

    @rule(key=KEYS, items=st.lists(SCALARS, max_size=3), ttl=TTLS)
    def set_list(self, key: bytes, items: list[object], ttl: float | None) -> None:
        self.set(key, items or {}, ttl)

    @rule(key=KEYS, number=NUMBERS, ttl=TTLS)
    def set_number(self, key: bytes, number: float, ttl: float | None) -> None:
        self.set(key, number, ttl)

    @rule(key=KEYS, delta=NUMBERS, up=st.booleans())
    def count(self, key: bytes, delta: float, up: bool) -> None:
        number = number_in(self.model.value(key))
        step = plain_number(delta if up else -delta)
        total = None if number is None else plain(number + step)
        if isinstance(total, int) and not SMALLEST <= total <= LARGEST:
            total = None
        assert same(self.ask("increment" if up else "decrement", key, delta), total)
        if total is not None:
            self.model.change(key, total)

    @rule(key=KEYS, start=NUMBERS, delta=NUMBERS, up=st.booleans())
    def count_from(self, key: bytes, start: float, delta: float, up: bool) -> None:
        self.set(key, start, None)
        self.count(key, delta, up)

    @rule(key=KEYS, text=TEXTS)
    def append(self, key: bytes, text: bytes) -> None:
        value = self.model.value(key)
        before = b"" if value is None else value
        if isinstance(before, bytes):
            assert self.ask("append", key, text) == len(before + text)
            self.model.change(key, before + text)
        else:
            assert self.ask("append", key, text) == -1

    @rule(key=KEYS, item=VALUES)
    def push(self, key: bytes, item: object) -> None:
        items = list_in(self.model.value(key))
        assert self.ask("list_push", key, item) == (-1 if items is None else len(items) + 1)
        if items is not None:
            self.model.change(key, [*items, plain(item)])

    @rule(key=KEYS)
    def pop(self, key: bytes) -> None:
        items = list_in(self.model.value(key))
        assert same(self.ask("list_pop", key), items[-1] if items else None)
        if items:
            self.model.change(key, items[:-1])

    @rule(key=KEYS, old=st.one_of(st.none(), SCALARS), new=VALUES)
    def swap(self, key: bytes, old: object, new: object) -> None:
        fits = same(self.model.value(key), plain(old))
        assert self.ask("compare_swap", key, old, new) is fits
        if fits:
            self.model.put(key, plain(new), None)

    @rule(key=KEYS, held=LOOK_ALIKES, old=LOOK_ALIKES)
    def swap_look_alikes(self, key: bytes, held: object, old: object) -> None:
        self.set(key, held, None)
        self.swap(key, old, b"new")

    @rule(key=KEYS, new=VALUES)
    def swap_what_was_read(self, key: bytes, new: object) -> None:
        assert self.ask("compare_swap", key, self.ask("get", key), new) is True
        self.model.put(key, plain(new), None)

    @rule(key=KEYS, ttl=st.sampled_from([-1, 0, 0.5, 10, 60]))
    def set_ttl(self, key: bytes, ttl: float) -> None:
        live = self.model.live(key)
        assert self.ask("set_ttl", key, ttl) is (live is not None)
        if live:
            live.expires_ms = self.model.expiry(ttl) if ttl > 0 else None
            live.version += 1

    @rule(key=KEYS, back=st.integers(0, 3))
    def roll_back(self, key: bytes, back: int) -> None:
        versions = self.model.versions(key)
        if back < len(versions):
            version, value = versions[back]
            assert same(self.ask("get_version", key, version), value)
            assert self.ask("rollback", key, version) is True
            self.model.put(key, value, None)
        else:
            assert self.ask("rollback", key, 10_000) is False

    @rule(seconds=st.sampled_from([0.4, 1, 9.5, 30]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.clock.turn(seconds))
        self.model.now_ms = self.clock.now_ms()

    @rule()
    def sweep(self) -> None:
        """What has expired is gone for good; the versions of its key go on from its history."""
        self.do(self.store.values.sweep())
        for key in [key for key in self.model.entries if not self.model.live(key)]:
            del self.model.entries[key]

    # Scopes: entries of their own

    @rule(key=KEYS, value=VALUES)
    def set_in_scope(self, key: bytes, value: object) -> None:
        result = self.ask("set", {b"scope": b"s", b"key": key, b"value": value})
        assert same(result, {"old_value": self.scopes.get(key), "new_value": plain(value)})
        self.scopes[key] = plain(value)

    @rule(key=KEYS, by=st.integers(-5, 5))
    def update_in_scope(self, key: bytes, by: int) -> None:
        op = {b"type": b"increment", b"path": b"n", b"by": by}
        old = self.scopes.get(key)
        fields = {} if old is None else old
        result = self.ask("update", {b"scope": b"s", b"key": key, b"ops": [op]})
        number = number_in(fields.get(b"n")) if isinstance(fields, dict) else None
        if not isinstance(fields, dict) or isinstance(fields.get(b"n"), bytes) or number is None:
            assert isinstance(result, dict)
            assert len(result["errors"]) == 1
            new: object = fields
        else:
            total = plain(number + by)
            new = {**fields, b"n": total} if not isinstance(total, int) or SMALLEST <= total <= LARGEST else fields
            assert isinstance(result, dict)
        assert same(result["new_value"], new)
        self.scopes[key] = new

    @rule(key=KEYS)
    def delete_in_scope(self, key: bytes) -> None:
        assert same(self.ask("delete", {b"scope": b"s", b"key": key}), self.scopes.pop(key, None))

    @invariant()
    def everything_that_is_kept_can_be_read(self) -> None:
        assert self.ask("keys") == self.model.matching()
        listed = self.ask("list")
        assert isinstance(listed, dict)
        for key in self.model.matching():
            kept = self.model.live(key)
            assert kept is not None
            assert same(listed[key], kept.value)
            left = -1 if kept.expires_ms is None else math.ceil((kept.expires_ms - self.model.now_ms) / 1000)
            assert self.ask("get_ttl", key) == left
            assert self.ask("exists", key) is True

    @invariant()
    def versions_are_those_that_were_written(self) -> None:
        for key in (b"a", b"user:1"):
            found = self.ask("history", key)
            assert isinstance(found, list)
            told = [(version["version"], version["value"]) for version in found]
            assert same([list(pair) for pair in told], [list(pair) for pair in self.model.versions(key)])


class Locks(Machine):
    """Four runs at a time, and two doors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [self._new_call() for _ in range(4)]
        self.held: dict[bytes, tuple[bytes, int]] = {}  # name → holder, run
        self.lines: dict[bytes, list[Waiting]] = {}

    def _new_call(self) -> Call:
        return make_call(self.world, run=self.do(self._new_run()))

    def teardown(self) -> None:
        for line in self.lines.values():
            for waiting in line:
                waiting.task.cancel()
        super().teardown()

    @rule(seconds=st.sampled_from([0.4, 9.5, 30]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.clock.turn(seconds))
        for name, line in list(self.lines.items()):
            for waiting in [waiting for waiting in line if waiting.deadline_ms <= self.clock.now_ms()]:
                assert waiting.task.result()[0] is False
                self._leave(name, waiting)

    def _is_waiting(self, run: int) -> bool:
        return any(waiting.run == run for line in self.lines.values() for waiting in line)

    def _holder(self, run: int, holder: bytes | None) -> bytes:
        return holder or b"prices#%d" % self.calls[run].run

    @rule(run=RUNS, name=LOCKS, holder=HOLDERS)
    def try_lock(self, run: int, name: bytes, holder: bytes | None) -> None:
        if self._is_waiting(run):
            return
        arguments = [] if holder is None else [holder, 30]
        free = name not in self.held
        assert self.ask_as(self.calls[run], "try_lock", name, *arguments) is free
        if free:
            self.held[name] = (self._holder(run, holder), run)

    @rule(run=RUNS, name=LOCKS, patience=st.sampled_from([0, 5, 40, 300]))
    def lock(self, run: int, name: bytes, patience: float) -> None:
        if self._is_waiting(run):
            return
        task = self.loop.create_task(ask(self.calls[run], "state.lock", name, patience))
        self.do(self.clock.turn())
        if name not in self.held:
            assert task.result() == [True]
            self.held[name] = (self._holder(run, None), run)
        elif self.held[name][1] == run or patience == 0:
            assert task.result()[0] is False
        else:
            assert not task.done()
            deadline = self.clock.now_ms() + round(patience * 1000)
            self.lines.setdefault(name, []).append(Waiting(run, deadline, task))

    @rule(run=RUNS, name=LOCKS, holder=HOLDERS)
    def unlock(self, run: int, name: bytes, holder: bytes | None) -> None:
        if self._is_waiting(run):
            return
        mine = name in self.held and self.held[name][0] == self._holder(run, holder)
        arguments = [] if holder is None else [holder]
        assert self.ask_as(self.calls[run], "unlock", name, *arguments) is mine
        self.do(self.clock.turn())
        if mine:
            self._pass_on(name)

    @rule(run=RUNS)
    def end_run(self, run: int) -> None:
        """However it ends: what it waits for is cancelled, what it holds is free."""
        for name, line in list(self.lines.items()):
            for waiting in [waiting for waiting in line if waiting.run == run]:
                waiting.task.cancel()
                self._leave(name, waiting)
        self.do(self._end(self.calls[run].run))
        for name in [name for name, (_, holding) in self.held.items() if holding == run]:
            self._pass_on(name)
        self.calls[run] = self._new_call()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def break_lock(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        self.do(self._break(name))
        self.do(self.clock.turn())
        self._pass_on(name)

    def _pass_on(self, name: bytes) -> None:
        """The first in line has it now."""
        del self.held[name]
        line = self.lines.get(name)
        if line:
            first = line[0]
            assert first.task.result() == [True]
            self._leave(name, first)
            self.held[name] = (self._holder(first.run, None), first.run)

    def _leave(self, name: bytes, waiting: Waiting) -> None:
        self.lines[name].remove(waiting)
        if not self.lines[name]:
            del self.lines[name]

    async def _new_run(self) -> RunId:
        new = NewRun(job=JobId("prices"), state=RunState.RUNNING, trigger=Trigger())
        (run,) = await self.store.runs.record(Change(new=[new]))
        assert run is not None
        return run

    async def _end(self, run: RunId) -> None:
        end = End(run=run, ended_ms=self.clock.now_ms(), outcome=Outcome.FAILED)
        await self.store.runs.record(Change(end=[end]))
        self.world.locks.run_ended(run)
        await self.clock.turn()

    async def _break(self, name: bytes) -> None:
        await self.store.locks.release(name, None)

    async def _holder_of(self, name: bytes) -> Held | None:
        return await self.store.locks.holder(name)

    @invariant()
    def locks_are_held_by_those_who_should(self) -> None:
        for name in (b"door", b"window"):
            held = self.do(self._holder_of(name))
            assert (held and held.holder) == self.held.get(name, (None,))[0]
        assert not any(waiting.task.done() for line in self.lines.values() for waiting in line)


def as_test(machine: type[Machine]) -> type:
    case = machine.TestCase
    case.settings = settings(suppress_health_check=[HealthCheck.too_slow])
    return cast(type, pytest.mark.slow(pytest.mark.timeout(300)(case)))  # to find a short failure takes long


TestValues = as_test(Values)
TestLocks = as_test(Locks)
