"""Three nodes on one database, whose machines, networks, files and operators do what the dice say."""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import cast

from msgspec.structs import replace

from spyweb.cluster.node import ClusterNode
from spyweb.errors import StoreError, StoreFenced
from spyweb.lua.session import Host, Request
from spyweb.model import After, Ending, Every, JobId, JobSpec, Never, Outcome, Overlap, Retry, RunId
from spyweb.ownership import Ownership
from spyweb.settings.sections import ClusterSettings
from spyweb.store.model.nodes import Node
from spyweb.store.postgres.nodes import Nodes
from tests.fakes.clock import FakeClock
from tests.fakes.harness import assemble, make_job, make_spec, slot_work
from tests.fakes.memory_store import MemoryStore
from tests.fakes.pool import FAILED, LOST, SUCCESS, FakePool
from tests.fakes.simulation.database import Link, SimDatabase, open_simulated
from tests.fakes.simulation.invariants import Broken, Invariants
from tests.fakes.simulation.virtual_time import Machine, MachineClock

LEASE_MS, BEAT_MS = 3_000, 500
LABELS: Mapping[str, tuple[str, ...]] = {"fra": (), "ams": ("gpu",), "lon": ("gpu",)}
NAMES = tuple(LABELS)
RESTART_S, STOP_S = 0.3, 3.0
SECONDS = 25.0  # with faults
RECOVERS, QUIET_S = 4, 9.0  # each fourth game goes on without faults, until all has to work again
ROUNDS = 10  # of the loop, in which all tasks have begun


def first_jobs() -> dict[JobId, JobSpec]:
    """Return the files of the project: of each kind of job what matters to slots."""
    often, retry = Every(period_ms=700), Retry(retries=2, delay_ms=300, max_delay_ms=1_000)
    specs = [make_spec(f"job{number}", schedule=often, retry=retry) for number in range(5)]
    specs += [
        make_spec("queued", schedule=often, overlap=Overlap.QUEUE),
        make_spec("side", schedule=often, overlap=Overlap.ALLOW),
        make_spec("labelled", schedule=often, labels=("gpu",)),
        make_spec("pinned", schedule=often, node="fra"),
        make_spec("after", schedule=Never(), after=(After(job=JobId("job0"), outcomes=frozenset({Outcome.SUCCESS})),)),
    ]
    return {spec.id: spec for spec in specs}


class SimPool(FakePool):
    """Runs that take their time, and do not always succeed."""

    def __init__(self, begins: Callable[[RunId], None], dice: Random, clock: MachineClock) -> None:
        super().__init__()
        self._begins, self._dice, self._clock = begins, dice, clock

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        self._begins(request.run)
        self.held.add(request.code.job)
        ending = self._dice.choice((SUCCESS,) * 8 + (FAILED, LOST))
        self._clock.call_later(self._dice.choice((0.02, 0.1, 0.6)), partial(self._end, request.run, ending))
        return await super().run(request, host)

    def _end(self, run: RunId, ending: Ending) -> None:
        if run in self._in_flight:
            self.finish(run, ending)


class Daemon:
    """An incarnation of spyweb that has joined: the real parts, but for connection, clock and pool."""

    def __init__(self, world: World, name: str, me: int, clock: MachineClock) -> None:
        self._world, self.name, self.me, self._machine = world, name, me, world.machines[name]
        self._boot = self._machine.boots
        link = Link(world.database, self._machine, clock, me)
        store, nodes = open_simulated(link, LEASE_MS / 1000, self._be_over)
        self.ownership = Ownership(clock, set())
        self.ownership.trusted_until = 0
        pool = SimPool(partial(world.begins, self), world.dice, clock)
        fake_clock = cast("FakeClock", clock)
        self.parts = assemble(cast("MemoryStore", store), fake_clock, pool, self.ownership, world.tasks)
        self.node = ClusterNode(
            nodes=cast("Nodes", nodes),
            ownership=self.ownership,
            work=slot_work(self.parts),
            clock=clock,
            settings=ClusterSettings(name=name, lease_ms=LEASE_MS, beat_ms=BEAT_MS),
        )

    def _be_over(self) -> None:
        self.node.be_over(StoreFenced("the store refuses what this node writes"))

    async def live_on(self) -> None:
        """Load the files, and take part until this incarnation is over."""
        await self.load(self._world.files[self.name])
        self.parts.timers.start()
        loops = (self.parts.scheduler.watch_the_clock(), self.node.keep_beating(), self.node.keep_balanced())
        for loop in loops:
            self._world.tasks.create_task(self._until_over(loop))

    async def _until_over(self, loop: Coroutine[object, object, None]) -> None:
        try:
            await loop
        except StoreFenced:
            if self._boot == self._machine.boots:
                self._world.end(self.name, RESTART_S)

    async def load(self, files: Mapping[JobId, JobSpec]) -> None:
        """Compare the files with the live jobs, as Reloader does."""
        live, scheduler = self.parts.live, self.parts.scheduler
        if gone := [job for job in live if job.id not in files]:
            await scheduler.deactivate(gone)
        for job in gone:
            live.remove(job.id)
            self.parts.runner.forget(job)
        new = [make_job(job) for job in files if live.find(job) is None]
        edited = [job for job in live if job.spec != files[job.id]]
        await scheduler.catch_up(edited)
        for job in new:
            live.add(job)
        for job in (*new, *edited):
            job.spec = files[job.id]
        live.link()
        self.node.pools = frozenset(job.pool for job in live)
        await scheduler.activate([job for job in (*new, *edited) if job.mine], {})


class World:
    """A cluster and its faults, all by one seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.dice = seed, Random(seed)
        self.files = {name: first_jobs() for name in NAMES}
        self.invariants, self.broken = Invariants(), ""
        self.faults = self.runs = 0
        self.daemons: dict[str, Daemon] = {}

    async def play(self) -> str:
        """Play it; return the promise that is broken first, if one is."""
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self.database = SimDatabase(self.dice, self._commits)
        offsets = (0, 0, -400, 900)
        self.machines = {name: Machine(self.dice.shuffle, self.dice.choice(offsets)) for name in NAMES}
        async with TaskGroup() as self.tasks:
            for name in NAMES:
                self._start(name)
            script = self.tasks.create_task(self._misfortunes())
            await asyncio.wait([self._over, script], return_when=asyncio.FIRST_COMPLETED)
            for machine in self.machines.values():
                machine.boots += 1
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        return self.broken

    def begins(self, daemon: Daemon, run: RunId) -> None:
        self.runs += 1
        self._watch(partial(self.invariants.begins, self.database, daemon.me, run))

    def _commits(self, node: int) -> None:
        self._watch(partial(self.invariants.commits, self.database, node))

    def _watch(self, check: Callable[[], None]) -> None:
        try:
            if not self._over.done():
                check()
        except Broken as error:
            self.broken = f"seed {self.seed}, at {self._loop.time():.3f} s: {error}"
            self._over.set_result(None)

    def _start(self, name: str) -> None:
        self.tasks.create_task(self._join(name, self.machines[name].boots))

    async def _join(self, name: str, boot: int) -> None:
        """Start a daemon, which joins as soon as the database answers, and its former self is gone."""
        machine, clock = self.machines[name], MachineClock(self.machines[name])
        while boot == machine.boots:
            is_away = machine.is_cut or self.database.is_away
            if me := 0 if is_away else self.database.add(Node(id=0, name=name, labels=LABELS[name], lease_ms=LEASE_MS)):
                self.daemons[name] = Daemon(self, name, me, clock)
                return await self.daemons[name].live_on()
            await clock.sleep(RESTART_S)
        return None

    def end(self, name: str, seconds: float) -> None:
        """End the daemon on a machine as `kill -9` does; another starts after so long."""
        machine = self.machines[name]
        machine.boots += 1
        self.daemons.pop(name, None)
        # Not if that is ended too before it starts.
        self._loop.call_later(seconds, partial(machine.call, machine.boots, partial(self._start, name)))

    async def _misfortunes(self) -> None:
        await asyncio.sleep(STOP_S)
        while self._loop.time() < SECONDS:
            await asyncio.sleep(self.dice.choice((0.2, 0.7, 2.0)))
            self.faults += 1
            fault = self.dice.choices(list(FAULTS), list(FAULTS.values()))[0]
            fault(self, self.dice.choice(NAMES))
        if self.seed % RECOVERS == 0:
            await self._recover()

    async def _recover(self) -> None:
        """Mend everything, and check that all works again after a while."""
        self.database.away_until, self.database.is_calm = 0, True
        for machine in self.machines.values():
            machine.cut(0)
            machine.offset_ms = 0
        await asyncio.sleep(QUIET_S)
        for name in NAMES:
            self._install(name, self.files[NAMES[0]])
        await asyncio.sleep(QUIET_S)
        daemons = {daemon.me: daemon for daemon in self.daemons.values()}
        self._watch(partial(self.invariants.recovered, self.database, daemons))

    # faults

    def freeze(self, name: str) -> None:
        self.machines[name].freeze(self.dice.choice((0.1, 2.0, 5.0, 9.0)))

    def cut(self, name: str) -> None:
        self.machines[name].cut(self.dice.choice((0.3, 2.5, 6.0)))

    def set_clock(self, name: str) -> None:
        self.machines[name].offset_ms = self.dice.choice((-5_000, -900, 0, 0, 400, 900, 5_000))

    def kill(self, name: str) -> None:
        self.end(name, self.dice.choice((0.2, 2.0, 6.0)))

    def take_database_away(self, _name: str) -> None:
        self.database.restart(self.dice.choice((0.5, 2.5, 5.0)))

    def fail_over(self, _name: str) -> None:
        self.database.restart(0.5)
        self.database.timeline += "1"

    def drain(self, name: str) -> None:
        """Have a daemon leave, as `spyweb stop` does, and start again."""
        if daemon := self.daemons.get(name):
            machine = self.machines[name]
            machine.call(machine.boots, lambda: self._spawn(daemon.node.leave()))
            self._loop.call_later(STOP_S, partial(machine.call, machine.boots, partial(self.end, name, 1.0)))

    def edit(self, name: str) -> None:
        """Give a node the files of another one, or new ones."""
        files = dict(self.files[self.dice.choice(NAMES)])
        if self.dice.random() < 0.4:
            job = self.dice.choice(list(first_jobs()))
            spec = files.pop(job, None)
            if spec is None:
                files[job] = first_jobs()[job]
            elif self.dice.random() < 0.7:
                node = self.dice.choice(("", "", "fra", "ams"))
                files[job] = replace(spec, labels=() if node else self.dice.choice(((), ("gpu",))), node=node)
        self._install(name, files)

    def _install(self, name: str, files: dict[JobId, JobSpec]) -> None:
        self.files[name] = files
        if daemon := self.daemons.get(name):
            machine = self.machines[name]
            machine.call(machine.boots, lambda: self._spawn(daemon.load(files)))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        async def attempt() -> None:
            with suppress(StoreError):
                await work

        self.tasks.create_task(attempt())


FAULTS: dict[Callable[[World, str], None], int] = {
    World.freeze: 30,
    World.cut: 20,
    World.set_clock: 12,
    World.kill: 10,
    World.take_database_away: 6,
    World.fail_over: 2,
    World.edit: 14,
    World.drain: 6,
}
