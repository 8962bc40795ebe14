"""The resolver on a clock that stands still and name servers that answer when the test says so."""

from __future__ import annotations

import asyncio
import socket
import threading
from asyncio import Task
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp.abc import ResolveResult

from spyweb.limits import HOST
from spyweb.ops.network import resolver as resolver_module
from spyweb.ops.network.resolver import (
    GIVE_UP_S,
    KEEP_FAILURE_S,
    KEEP_S,
    MOST_KEPT,
    NUMERIC,
    SLOW_AFTER_S,
    Address,
    Priority,
    Resolver,
    ask_system,
)
from tests.fakes.clock import FakeClock

ADDRESS = Address(socket.AF_INET, "192.0.2.1")


class Names:
    """Name servers: each lookup waits for its host to be let go; `quick` ones answer at once."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.quick: set[str] = set()
        self.missing: set[str] = set()
        self._gates: dict[str, threading.Event] = {}
        self._all = threading.Event()

    def __call__(self, host: str) -> tuple[Address, ...]:
        self.asked[host] += 1
        if host not in self.quick:
            self._gate(host).wait(20)
        if host in self.missing:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return (ADDRESS,)

    def _gate(self, host: str) -> threading.Event:
        return self._gates.setdefault(host, self._all if self._all.is_set() else threading.Event())

    def let_go(self, host: str) -> None:
        self._gate(host).set()

    def hold_again(self) -> None:
        self._gates.clear()

    def let_all_go(self) -> None:
        self._all.set()
        for gate in list(self._gates.values()):
            gate.set()


class ResolverHarness:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.names = Names()
        self.resolver = Resolver(self.clock, self.names)

    async def resolve(self, host: str) -> list[str]:
        return [each["host"] for each in await self.resolver.resolve(host, 80)]

    async def wait_until_idle(self) -> None:
        self.names.let_all_go()
        while self.resolver.busy:  # noqa: ASYNC110 - real threads: only their landing tells that they have ended
            await asyncio.sleep(0.001)


@pytest.fixture
async def harness() -> AsyncIterator[ResolverHarness]:
    harness = ResolverHarness()
    yield harness
    await harness.wait_until_idle()
    await harness.resolver.close()


def ask_for(harness: ResolverHarness, group: asyncio.TaskGroup, *hosts: str) -> list[Task[list[str]]]:
    return [group.create_task(harness.resolve(host)) for host in hosts]


async def test_a_name_becomes_the_addresses_it_has(harness: ResolverHarness) -> None:
    harness.names.quick.add("a.test")
    assert await harness.resolver.resolve("A.test", 443) == [
        ResolveResult(hostname="A.test", host="192.0.2.1", port=443, family=socket.AF_INET, proto=0, flags=NUMERIC)
    ]


async def test_only_addresses_of_the_family_asked_for_are_given(harness: ResolverHarness) -> None:
    harness.names.quick.add("a.test")
    with pytest.raises(OSError, match="it has no address"):
        await harness.resolver.resolve("a.test", 80, socket.AF_INET6)
    assert len(await harness.resolver.resolve("a.test", 80, socket.AF_INET)) == 1


async def test_this_machine_needs_no_name_server(harness: ResolverHarness) -> None:
    assert await harness.resolve("localhost") == ["127.0.0.1", "::1"]
    assert await harness.resolve("app.LOCALHOST.") == ["127.0.0.1", "::1"]
    assert not harness.names.asked


@pytest.mark.parametrize("host", ["a" * (HOST + 1), "bücher.test"])
async def test_what_can_be_no_name_is_not_asked(harness: ResolverHarness, host: str) -> None:
    with pytest.raises(OSError, match="not a host name"):
        await harness.resolve(host)
    assert not harness.names.asked


async def test_of_very_many_addresses_a_few_are_kept() -> None:
    many = tuple(Address(socket.AF_INET, f"10.0.{number >> 8}.{number & 255}") for number in range(4_000))
    resolver = Resolver(FakeClock(), lambda host: many)
    found = await resolver.resolve("many.test")
    assert [each["host"] for each in found] == [address.host for address in many[:32]]


async def test_an_answer_is_kept_for_a_while(harness: ResolverHarness) -> None:
    harness.names.quick.add("a.test")
    for turn, asked in [(0, 1), (KEEP_S - 0.1, 1), (0.2, 2)]:
        harness.clock.advance(turn)
        await harness.resolve("a.test")
        assert harness.names.asked["a.test"] == asked


async def test_a_failure_is_kept_for_a_short_one(harness: ResolverHarness) -> None:
    harness.names.quick.add("no.test")
    harness.names.missing.add("no.test")
    for turn, asked in [(0, 1), (KEEP_FAILURE_S - 0.1, 1), (0.2, 2)]:
        harness.clock.advance(turn)
        with pytest.raises(OSError, match="not known"):
            await harness.resolve("no.test")
        assert harness.names.asked["no.test"] == asked


async def test_all_who_ask_for_a_host_share_one_lookup_which_goes_on_without_one_of_them(
    harness: ResolverHarness,
) -> None:
    async with asyncio.TaskGroup() as group:
        first, *tasks = ask_for(harness, group, *["a.test"] * 51)
        await harness.clock.turn()
        assert harness.resolver.busy == 1
        first.cancel()
        await harness.clock.turn()
        harness.names.let_go("a.test")
    assert first.cancelled()
    assert [task.result() for task in tasks] == [["192.0.2.1"]] * 50
    assert harness.names.asked["a.test"] == 1


async def test_a_thread_that_is_stuck_is_not_joined_by_another_for_the_same_host(harness: ResolverHarness) -> None:
    async with asyncio.TaskGroup() as group:
        failing = group.create_task(fails(harness, "bad.test"))
        await harness.clock.turn(GIVE_UP_S)
    assert failing.result() == "no answer within 10 s"
    assert harness.resolver.busy == 1
    harness.clock.advance(KEEP_FAILURE_S)
    async with asyncio.TaskGroup() as group:
        (late,) = ask_for(harness, group, "bad.test")
        await harness.clock.turn()
        assert harness.names.asked["bad.test"] == 1
        harness.names.let_go("bad.test")
    assert late.result() == ["192.0.2.1"]


async def test_an_answer_that_comes_after_all_is_kept(harness: ResolverHarness) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fails(harness, "late.test"))
        await harness.clock.turn(GIVE_UP_S)
    await harness.wait_until_idle()
    assert await harness.resolve("late.test") == ["192.0.2.1"]
    assert harness.names.asked["late.test"] == 1


async def fails(harness: ResolverHarness, host: str) -> str:
    with pytest.raises(OSError) as error:  # noqa: PT011 - its text is what is given
        await harness.resolve(host)
    return str(error.value)


async def test_new_hosts_leave_threads_for_proven_ones(harness: ResolverHarness) -> None:
    harness.names.quick |= {"proven.test"}
    await harness.resolve("proven.test")
    harness.clock.advance(KEEP_S + 1)
    harness.names.quick.add("new.test")
    async with asyncio.TaskGroup() as group:
        hanging = ask_for(harness, group, *(f"bad{number}.test" for number in range(Priority.NEW)))
        await harness.clock.turn()
        (waiting,) = ask_for(harness, group, "new.test")
        await harness.clock.turn()
        assert await harness.resolve("proven.test") == ["192.0.2.1"]
        assert not waiting.done()
        harness.names.let_go("bad7.test")
        assert await hanging[7] == ["192.0.2.1"]
        assert await waiting == ["192.0.2.1"]
        for task in hanging:
            task.cancel()


async def test_hosts_known_to_be_slow_leave_threads_for_the_others(harness: ResolverHarness) -> None:
    slow = [f"slow{number}.test" for number in range(Priority.SLOW + 1)]
    async with asyncio.TaskGroup() as group:
        tasks = ask_for(harness, group, *slow)
        await harness.clock.turn(SLOW_AFTER_S + 1)
        for host in slow:
            harness.names.let_go(host)
    assert all(task.done() for task in tasks)
    harness.clock.advance(KEEP_S + 1)
    harness.names.hold_again()
    async with asyncio.TaskGroup() as group:
        tasks = ask_for(harness, group, *slow)
        await harness.clock.turn()
        assert harness.resolver.busy == Priority.SLOW
        (new,) = ask_for(harness, group, "new.test")
        await harness.clock.turn()
        assert harness.resolver.busy == Priority.SLOW + 1
        for task in (*tasks, new):
            task.cancel()


async def test_a_lookup_that_never_began_is_called_off_in_time(harness: ResolverHarness) -> None:
    async with asyncio.TaskGroup() as group:
        hanging = ask_for(harness, group, *(f"bad{number}.test" for number in range(Priority.NEW)))
        await harness.clock.turn(5)
        failing = group.create_task(fails(harness, "new.test"))
        await harness.clock.turn()
        for task in hanging:
            task.cancel()
        await harness.clock.turn(GIVE_UP_S)
    assert failing.result() == "no answer within 10 s"
    await harness.wait_until_idle()
    assert harness.names.asked["new.test"] == 0


async def test_a_machine_without_threads_is_an_error_and_not_the_end(
    harness: ResolverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await fails(harness, "a.test") == "can't start new thread"
    assert harness.resolver.busy == 0


async def test_what_is_kept_is_bounded(harness: ResolverHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_KEPT <= 10_000
    monkeypatch.setattr(resolver_module, "MOST_KEPT", 2)
    harness.names.quick |= {"a.test", "b.test", "c.test"}
    for host in ("a.test", "b.test", "c.test", "c.test", "a.test"):
        await harness.resolve(host)
    assert harness.names.asked == {"a.test": 2, "b.test": 1, "c.test": 1}


async def test_closing_tells_those_who_wait(harness: ResolverHarness) -> None:
    async with asyncio.TaskGroup() as group:
        failing = group.create_task(fails(harness, "bad.test"))
        await harness.clock.turn()
        await harness.resolver.close()
    assert failing.result() == "the daemon is stopping"


def test_the_system_is_asked_in_bytes_and_an_address_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text would go through Python's idna codec, which refuses long labels and more."""

    def answer(host: bytes, port: None, **options: object) -> list[tuple[object, ...]]:
        assert host == b"a_b.test"
        return [(socket.AF_INET, kind, 6, "", ("192.0.2.1", 0)) for kind in (1, 2)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    assert ask_system("a_b.test") == (ADDRESS,)
