"""Extend harness.py with changes of stored values that start jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from spyweb.errors import Problem
from spyweb.model import ChangeKind, JobId, Never, On, RunId, Value
from spyweb.runs.live import LiveJob
from spyweb.runs.triggers import Triggers
from spyweb.settings.reading import Reading
from spyweb.settings.tables import TomlTable
from spyweb.specs.watches import ON
from spyweb.store.model.entries import NOBODY, ChangeEvent, Drop, Origin, Put, WantedChange, scope_namespace
from tests.fakes.changes import waiting
from tests.fakes.clock import FakeClock
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.memory_store import MemoryStore


def on(**settings: object) -> tuple[On, ...]:
    return read_on(settings)


def read_on(value: object) -> tuple[On, ...]:
    problems: list[Problem] = []
    found: tuple[On, ...] = Reading([TomlTable(values={"on": value})], problems).tables("on", ON, ())
    assert not problems, problems
    return found


def make_listener(name: str = "orders", **settings: object) -> LiveJob:
    """Make a job that starts with every change of the scope `orders`."""
    return make_job(name, **{"schedule": Never(), "on": on(scope="orders"), **settings})


def make_event(
    key: bytes = b"42", *, namespace: str = "scope:orders", old: Value = None, new: Value = b"v", depth: int = 0
) -> ChangeEvent:
    return ChangeEvent(
        id=9,
        namespace=namespace,
        key=key,
        kind=ChangeKind.CREATED,
        old=old,
        new=new,
        version=1,
        at_ms=1,
        origin=Origin(job=JobId("shop"), run=RunId(7), depth=depth),
    )


def make_wanted(key: bytes = b"42", *, namespace: str = "scope:orders", depth: int = 0) -> WantedChange:
    event = make_event(key, namespace=namespace, depth=depth)
    return WantedChange(
        job=JobId("orders"),
        event=event.id,
        namespace=event.namespace,
        key=event.key,
        kind=event.kind,
        at_ms=event.at_ms,
        origin=event.origin,
    )


@dataclass(slots=True, kw_only=True)
class TriggeredHarness:
    harness: Harness
    triggers: Triggers
    handing_out: asyncio.Task[None] | None = None

    async def settle(self, *jobs: LiveJob) -> None:
        """Take up the jobs, what an earlier daemon left open, then the changes, as the daemon does."""
        await self.harness.settle(*jobs)
        await self.harness.runner.take_up(await self.harness.store.runs.open())
        self.handing_out = self.harness.tasks.create_task(self.triggers.deliver())
        await self.harness.clock.turn()

    async def write(self, key: str, value: Value = 1, *, scope: str = "orders", origin: Origin = NOBODY) -> None:
        namespace = scope_namespace(scope)
        await self.harness.store.values.transform(namespace, key.encode(), lambda _: Put(value), origin=origin)

    async def delete(self, key: str, *, scope: str = "orders") -> None:
        await self.harness.store.values.transform(scope_namespace(scope), key.encode(), lambda _: Drop())

    async def change(self, key: str, value: Value = 1, **how: object) -> None:
        """Write a value, and let what follows come to rest."""
        await self.write(key, value, **how)  # type: ignore[arg-type]  # a test names real parameters
        await self.harness.clock.turn()

    def handled(self, job: str | None = None) -> list[str]:
        """Return the keys of the changes that runs were started for, in their order."""
        return [str(event["key"]) for event in self.events(job)]

    def events(self, job: str | None = None) -> list[dict[str, object]]:
        """Return what the scripts were told, as text."""
        requests = [each for each in self.harness.pool.requests if each.procedure == "trigger"]
        chosen = [each for each in requests if job in (None, each.code.job)]
        return [as_text(msgspec.msgpack.decode(msgspec.msgpack.encode(each.arguments[2]))) for each in chosen]

    async def left(self) -> list[str]:
        """Return the keys of changes that wait in the store."""
        changes = await waiting(self.harness.store)
        return [key.decode() for key in {change.event: change.key for change in changes}.values()]


def as_text(told: dict[str, object]) -> dict[str, object]:
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in told.items()}


@asynccontextmanager
async def triggered_harness(
    store: MemoryStore | None = None, clock: FakeClock | None = None
) -> AsyncIterator[TriggeredHarness]:
    async with harness(store, clock) as t:
        triggers = Triggers(store=t.store, live=t.live, runner=t.runner, clock=t.clock)
        triggered = TriggeredHarness(harness=t, triggers=triggers)
        yield triggered
        triggers.stop()
        if triggered.handing_out:
            triggered.handing_out.cancel()
