"""Three nodes on one database, whose machines, networks, files and operators do what the dice say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import ClassVar, cast
from unittest.mock import patch

from msgspec.structs import replace

from spyweb import ownership
from spyweb.cluster.node import ClusterNode
from spyweb.errors import StoreFenced
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
from tests.fakes.simulation.game import Game, Step
from tests.fakes.simulation.invariants import Invariants
from tests.fakes.simulation.virtual_time import Machine, MachineClock

LEASE_MS, BEAT_MS = 3_000, 500
LABELS: Mapping[str, tuple[str, ...]] = {"fra": (), "ams": ("gpu",), "lon": ("gpu",)}
NAMES = tuple(LABELS)
RESTART_S, STOP_S = 0.3, 3.0
SECONDS = 25.0  # with faults
RECOVERS, QUIET_S = 4, 9.0  # each fourth game goes on without faults, until all has to work again


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


class World(Game):
    """A cluster and its faults."""

    STEPS: ClassVar = {
        "freeze": 30,
        "cut": 20,
        "set_clock": 12,
        "kill": 10,
        "take_database_away": 6,
        "fail_over": 2,
        "edit": 14,
        "drain": 6,
    }

    def __init__(self, seed: int, script: Sequence[Step] | None = None) -> None:
        super().__init__(seed, script)
        self.files = {name: first_jobs() for name in NAMES}
        self.invariants = Invariants()
        self.daemons: dict[str, Daemon] = {}

    def draw(self, dice: Random) -> Sequence[Step]:
        steps, passed_s = list[Step](), 0.0
        while passed_s < SECONDS - STOP_S:
            after_s = dice.choice((0.2, 0.7, 2.0)) + (0 if steps else STOP_S)
            what = dice.choices(list(self.STEPS), list(self.STEPS.values()))[0]
            steps.append(Step(after_s, what, dice.choice(NAMES), dice.getrandbits(32)))
            passed_s += after_s
        return steps

    async def play(self) -> None:
        with patch.object(ownership, "SLOTS", 8), patch.object(ownership, "LABEL_SLOTS", 2):  # each has jobs
            await super().play()

    async def begin(self) -> None:
        self.database = SimDatabase(self.dice, self._commits)
        offsets = (0, 0, -400, 900)
        self.machines = {name: Machine(self.dice, self.dice.choice(offsets)) for name in NAMES}
        for name in NAMES:
            self._start(name)

    def end_all(self) -> None:
        self.tally["commits"] = self.database.commits
        for machine in self.machines.values():
            machine.boots += 1

    def begins(self, daemon: Daemon, run: RunId) -> None:
        self.tally["runs"] += 1
        self.judge(partial(self.invariants.begins_on, self.database, daemon.me, run))

    def _commits(self, node: int) -> None:
        self.judge(partial(self.invariants.commits, self.database, node))

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
        self.tally["crashes"] += 1
        machine = self.machines[name]
        machine.boots += 1
        self.daemons.pop(name, None)
        # Not if that is ended too before it starts.
        self.loop.call_later(seconds, partial(machine.call, machine.boots, partial(self._start, name)))

    async def recover(self) -> None:
        if self.seed % RECOVERS:
            return
        self.database.away_until, self.database.is_calm = 0, True
        for machine in self.machines.values():
            machine.cut(0)
            machine.offset_ms = 0
        await asyncio.sleep(QUIET_S)
        for name in NAMES:
            self._install(name, self.files[NAMES[0]])
        await asyncio.sleep(QUIET_S)
        daemons = {daemon.me: daemon for daemon in self.daemons.values()}
        self.judge(partial(self.invariants.recovered, self.database, daemons))

    # faults

    def freeze(self, name: str, dice: Random) -> None:
        self.machines[name].freeze(dice.choice((0.1, 2.0, 5.0, 9.0)))

    def cut(self, name: str, dice: Random) -> None:
        self.machines[name].cut(dice.choice((0.3, 2.5, 6.0)))

    def set_clock(self, name: str, dice: Random) -> None:
        self.machines[name].offset_ms = dice.choice((-5_000, -900, 0, 0, 400, 900, 5_000))

    def kill(self, name: str, dice: Random) -> None:
        self.end(name, dice.choice((0.2, 2.0, 6.0)))

    def take_database_away(self, _name: str, dice: Random) -> None:
        self.database.restart(dice.choice((0.5, 2.5, 5.0)))

    def fail_over(self, _name: str, _dice: Random) -> None:
        self.database.restart(0.5)
        self.database.timeline += "1"

    def drain(self, name: str, _dice: Random) -> None:
        """Have a daemon leave, as `spyweb stop` does, and start again."""
        if daemon := self.daemons.get(name):
            machine = self.machines[name]
            machine.call(machine.boots, lambda: self.spawn(daemon.node.leave()))
            self.loop.call_later(STOP_S, partial(machine.call, machine.boots, partial(self.end, name, 1.0)))

    def edit(self, name: str, dice: Random) -> None:
        """Give a node the files of another one, or new ones."""
        files = dict(self.files[dice.choice(NAMES)])
        if dice.random() < 0.4:
            job = dice.choice(list(first_jobs()))
            spec = files.pop(job, None)
            if spec is None:
                files[job] = first_jobs()[job]
            elif dice.random() < 0.7:
                node = dice.choice(("", "", "fra", "ams"))
                files[job] = replace(spec, labels=() if node else dice.choice(((), ("gpu",))), node=node)
        self._install(name, files)

    def _install(self, name: str, files: dict[JobId, JobSpec]) -> None:
        self.files[name] = files
        if daemon := self.daemons.get(name):
            machine = self.machines[name]
            machine.call(machine.boots, lambda: self.spawn(daemon.load(files)))
