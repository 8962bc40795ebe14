"""A daemon that is alone on its database, with the disk, the clock, the files and the people that the dice give it.

Scheduler, runner, reloader, triggers, locks, outbox, incidents and the SQLite store are the real ones.  What scripts
do, and who receives messages, is decided by the dice.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import patch

from msgspec.structs import replace

from spyweb.alerts import watcher as alerts_watcher
from spyweb.alerts.measures import IncidentHooks, JobMeasures
from spyweb.alerts.watcher import AlertWatcher
from spyweb.errors import Problem, SpywebError
from spyweb.incidents.policy import AlertPolicy
from spyweb.lua.session import Host, Request
from spyweb.model import (
    After,
    At,
    Cron,
    Ending,
    Every,
    JobId,
    JobSpec,
    Misfire,
    MisfirePolicy,
    Never,
    On,
    Outcome,
    Overlap,
    Retry,
    Run,
    RunId,
    Schedule,
    TaskRow,
    TaskStatus,
)
from spyweb.ops.locks import LockKeeper, LockRequest
from spyweb.ops.sources import Sources
from spyweb.outbox.send import DeliveryFailure
from spyweb.outbox.sender import OutboxSender
from spyweb.reload import swap
from spyweb.reload.proof import Prover
from spyweb.reload.swap import Reloader, Renames
from spyweb.runs.pings import PingRuns
from spyweb.runs.triggers import Triggers
from spyweb.scheduler import scheduler
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.specs.discover import Scan
from spyweb.specs.parse import JobFile
from spyweb.store.marker import Marker
from spyweb.store.model.entries import Origin, Put, Replacement, scope_namespace
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from spyweb.store.sqlite import checkpoints, store
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.when.audit import RunAuditService
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.harness import BY_HAND, assemble, make_spec
from tests.fakes.memory_store import MemoryStore
from tests.fakes.pool import FAILED, LOST, SUCCESS, FakePool
from tests.fakes.simulation.disk import HOW, Disk
from tests.fakes.simulation.game import Game, Step
from tests.fakes.simulation.invariants import Judge
from tests.fakes.simulation.virtual_time import Machine, MachineClock

IN_MEMORY = Path("/dev/shm")
UNITS_S = (1, 60, 21_600)  # of time, one a game: often, or for months
STARTS = ("2026-03-28T20:00Z", "2026-10-24T20:00Z", "2026-06-01T00:00Z")  # two are evenings before the clocks change
STEPS, QUIET = 22, 30  # steps of a script, and the units after it in which nothing fails
SET_BACK = 100  # units: the clock before a quiet time, in a third of the games
SKIPPED = Ending(outcome=Outcome.SKIPPED, reason="nothing to do", declined=True)
QUICK_S, SLOW_S = (0.0001, 0.0001, 0.001, 0.02), (0.001, 0.05, 0.4)  # a disk
ORDERS = "orders"
POLICY = AlertPolicy(to=("ops",), after_failures=2, remind_ms=None)
HOOKED = b"function on_down() end function on_up() end function run() end"
LEASE_MS = 8_000
STEADY = ("base", "after", "shop", "orders", "press", "print", "deploy", "hooked")
ZONE = "Europe/Berlin"


def first_files(dice: Random, unit_s: int, start_ms: int) -> dict[JobId, JobFile]:
    """Return the files of a project: a job of each kind that matters, and some by the dice."""

    def every(*units: int) -> Every:
        return Every(period_ms=dice.choice(units) * unit_s * 1000)

    def schedule() -> Schedule:
        crons = {1: (), 60: ("*/5 * * * *", "30 * * * *"), 21_600: ("30 2 * * *", "0 3 * * *", "15 2 * * *")}[unit_s]
        found: list[Schedule] = [every(2, 5, 13), *(Cron(expression=each, timezone=ZONE) for each in crons * 2)]
        return dice.choice(found)

    retry = Retry(retries=2, delay_ms=500, max_delay_ms=2_000)
    success = frozenset({Outcome.SUCCESS})
    specs = [
        make_spec("base", schedule=every(5), retry=retry),
        make_spec("after", schedule=Never(), after=(After(job=JobId("base"), outcomes=success),)),
        make_spec("shop", schedule=every(3, 6)),
        make_spec("orders", schedule=Never(), on=(On(namespace=scope_namespace(ORDERS)),), overlap=Overlap.QUEUE),
        make_spec("press", schedule=every(4), overlap=Overlap.QUEUE),
        make_spec("print", schedule=every(4), overlap=Overlap.QUEUE),
        make_spec("deploy", schedule=every(6), resume=True),
        make_spec("hooked", schedule=every(5)),
        make_spec("once", schedule=At(at_ms=start_ms + dice.randrange(100) * unit_s * 1000)),
    ]
    for number in range(5):
        misfire = Misfire(
            policy=dice.choice(list(MisfirePolicy)),
            grace_ms=dice.choice((None, None, 5_000)),
            limit=dice.choice((1, 4, 100)),
        )
        spec = make_spec(
            f"any{number}",
            schedule=schedule(),
            overlap=dice.choice(list(Overlap)),
            misfire=misfire,
            retry=dice.choice((Retry(), retry)),
            jitter_ms=dice.choice((0, 0, 900)),
        )
        specs.append(spec)
    return {spec.id: file_of(replace(spec, alerts=POLICY)) for spec in specs}


def file_of(spec: JobSpec, version: int = 1) -> JobFile:
    source = HOOKED if spec.id == "hooked" else b"return 1"
    return JobFile(spec=spec, lua=((spec.path, source),), digest=f"{spec.path} {version}")


class ScriptPool(FakePool):
    """Performs runs, as the scripts of these jobs would."""

    def __init__(self, daemon: AloneDaemon) -> None:
        super().__init__()
        self._daemon = daemon

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        daemon, job = self._daemon, request.code.job
        run = next(run for run in daemon.parts.live.running() if run.id == request.run)
        if not daemon.is_alive:
            await asyncio.get_running_loop().create_future()
        daemon.world.begins(daemon, run)
        ended = self._in_flight[run.id] = asyncio.get_running_loop().create_future()
        script = asyncio.create_task(self._perform(job, run))
        try:
            ending: Ending = await ended
            return ending
        finally:
            daemon.world.truth.running[job].discard(run.id)
            script.cancel()

    async def _perform(self, job: JobId, run: Run) -> None:
        dice = Random(f"{self._daemon.world.seed} {job} {run.id}")
        try:
            await getattr(self, f"_{job}", self._work)(run, dice)
            ending = dice.choice((SUCCESS,) * 7 + (FAILED, FAILED, LOST, SKIPPED))
        except SpywebError as error:
            ending = replace(FAILED, reason=str(error))
        if run.id in self._in_flight:
            self.finish(run.id, ending)

    async def _work(self, _run: Run, dice: Random) -> None:
        await self._daemon.clock.sleep(dice.choice((0.01, 0.2, 2.0, 9.0)))

    async def _shop(self, run: Run, dice: Random) -> None:
        """Store a value that another job watches, and send a message about it."""
        kept, truth = self._daemon.store, self._daemon.world.truth
        key, value, text = b"order%d" % dice.randrange(3), b"%d" % run.id, f"order of run {run.id}"
        acknowledged, _ = truth.values.get(key, (b"", b""))
        if acknowledged:
            truth.values[key] = (acknowledged, value)
        await self._work(run, dice)
        change = Replacement(lambda: Put(value))
        await kept.values.transform(scope_namespace(ORDERS), key, change, origin=Origin(job=run.job, run=run.id))
        truth.values[key] = (value, value)
        target = Target(Channel.WEBHOOK, dice.choice(("https://a.example", "https://b.example")))
        await kept.outbox.add([NewMessage(job=run.job, target=target, payload=text.encode())])
        truth.asked.add(text)

    async def _press(self, run: Run, dice: Random) -> None:
        """Work while a lock is held."""
        world, keeper = self._daemon.world, self._daemon.locks
        name = b"ink"
        request = LockRequest(name=name, holder=b"%d" % run.id, run=run.id, lease_ms=LEASE_MS)
        if await keeper.wait(request, 30.0) is None:
            world.judge(partial(world.truth.takes_lock, world.disk.open[0], name, run.id))
            await self._daemon.clock.sleep(dice.choice((0.1, 2.0, 20.0)))

    _print = _press

    async def _deploy(self, run: Run, dice: Random) -> None:
        """Perform tasks, without those that the chain of this run has ended."""
        world, tasks = self._daemon.world, self._daemon.store.tasks
        plan = [("", name) for name in ("build", "copy", "switch")]
        taken = await tasks.take_over(run.id, plan) if run.trigger.resumes else ()
        first = run.trigger.resumes or run.id
        for ordinal, (workflow, name) in enumerate(plan):
            if any(row.ordinal == ordinal for row in taken):
                continue
            world.judge(partial(world.truth.performs, first, name))
            await self._work(run, dice)
            now_ms = self._daemon.clock.now_ms()
            row = TaskRow(
                ordinal=ordinal, workflow=workflow, name=name, status=TaskStatus.SUCCESS, attempts=1,
                started_ms=now_ms, ended_ms=now_ms,
            )  # fmt: skip
            await tasks.add(run.id, [row])
            world.truth.done.add((first, name))


class AloneDaemon:
    """One life of spyweb: what daemon/build.py builds, as far as it matters here."""

    def __init__(self, world: Alone, clock: MachineClock) -> None:
        self.world, self.clock, self._boot = world, clock, world.machine.boots

    @property
    def is_alive(self) -> bool:
        return self._boot == self.world.machine.boots

    async def open(self) -> None:
        """Do as daemon/serve.py does, up to the start of the timers."""
        world, clock = self.world, self.clock
        path = world.disk.path
        self.store = await open_store(path, clock=clock, marker=Marker(path.parent, path, clock))
        world.judge(partial(world.truth.reopened, world.disk.open[0]))
        self.locks = LockKeeper(self.store.locks, clock)
        pool = ScriptPool(self)
        parts = self.parts = assemble(
            cast("MemoryStore", self.store), cast("FakeClock", clock), pool, None, world.tasks
        )
        live, runner = parts.live, parts.runner
        runner.run_ended = self._run_ended
        self.outbox = OutboxSender(
            outbox=self.store.outbox, send=self._send, clock=clock, random=world.dice.random, live=live
        )
        settings = AlertSettings(
            channels={"ops": AlertChannelSettings(name="ops", webhook="https://ops")}, policy=POLICY
        )
        measures = JobMeasures(live, parts.scheduler.pause_together, runner.start_by_hand, self.store.runs)
        self.alerts = AlertWatcher(
            incidents=self.store.incidents, live=live, settings=lambda: settings, measures=measures, clock=clock
        )
        self.alerts.hooks = IncidentHooks(self.store.incidents, live, runner, clock)
        runner.judge = self.alerts.judge
        self.triggers = Triggers(store=self.store, live=live, runner=runner, clock=clock)
        sources = Sources(path.parent)
        prover = Prover(pool=pool, sources=sources, load=no_load, find_selector_problem=no_problem, clock=clock)
        self.reloader = Reloader(
            root=path.parent,
            settings_file=cast("Any", SimpleNamespace(current=None, reread=never_changed)),
            live=live,
            scheduler=parts.scheduler,
            runner=runner,
            prover=prover,
            renames=Renames(keeps_no_values),
            clock=clock,
            _linter=cast("Any", SimpleNamespace(finish=dict)),
        )
        left_open = await self.store.runs.open()
        await self.alerts.load()
        await self.reloader.load(await self.store.runs.cursors())
        pings = PingRuns(runner=runner, live=live, write_line=lambda *_: None, clock=clock)
        await pings.take_up(left_open)
        parts.timers.start()
        for work in (
            parts.scheduler.watch_the_clock(),
            self.reloader.keep_up(),
            self.triggers.deliver(),
            self.alerts.keep_up(),
            self.outbox.deliver(),
        ):
            world.tasks.create_task(work)

    def _run_ended(self, run: RunId) -> None:
        self.locks.run_ended(run)
        self.world.truth.lets_go(run)

    async def _send(self, message: QueuedMessage) -> DeliveryFailure | None:
        return await self.world.receive(self, message)

    async def stop(self) -> None:
        """Do as `spyweb stop` does."""
        parts = self.parts
        parts.scheduler.stop()
        self.triggers.stop()
        await parts.runner.drain(3.0)
        await self.outbox.wind_down(2.0)
        await self.store.close()


@contextmanager
def closing_all_of(root: Path) -> Iterator[None]:
    """Close, at the end, the files below a folder that are still open, as the system does when a process is dead."""
    left, open_file, close_file = set[int](), os.open, os.close

    def open_and_note(path: Any, *arguments: Any, **options: Any) -> int:
        file = open_file(path, *arguments, **options)
        if str(path).startswith(str(root)):
            left.add(file)
        return file

    def close_and_note(file: int) -> None:
        left.discard(file)
        close_file(file)

    with patch.object(os, "open", open_and_note), patch.object(os, "close", close_and_note):
        yield
    for file in left:
        close_file(file)


async def no_load(_spec: object, _code: object) -> None: ...


async def no_problem(_selector: str, *, of_field: bool = False) -> str | None:
    return None


async def never_changed() -> bool:
    return False


async def keeps_no_values(_job: JobId) -> bool:
    return False


async def inline(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class Alone(Game):
    """A machine, its disk and its daemon."""

    STEPS: ClassVar = {
        "fail_disk": 30,
        "slow_disk": 4,
        "lock_database": 4,
        "kill": 12,
        "stop": 5,
        "freeze": 6,
        "set_clock": 7,
        "edit": 18,
        "pause": 6,
        "resume": 6,
        "cancel": 4,
        "start_by_hand": 4,
        "change_receiver": 10,
    }

    def __init__(self, seed: int, script: Sequence[Step] | None = None) -> None:
        dice = Random(f"world {seed}")
        self.unit_s = dice.choice(UNITS_S)
        super().__init__(seed, script)
        self.start_ms = round(datetime.fromisoformat(dice.choice(STARTS)).timestamp() * 1000)
        self.original = self.files = first_files(dice, self.unit_s, self.start_ms)
        self.broken_files: set[JobId] = set()
        self.latencies_s = dice.choice((QUICK_S, QUICK_S, SLOW_S))
        self.pages = dice.choice((20, 8_000))  # of the log, between two checkpoints
        self.receiver = "well"
        self._versions = count(2)
        self.truth = Judge(steady=dict.fromkeys(("hooked", "base"), 2), follower=("base", "after"), watcher="orders")
        self.daemon: AloneDaemon | None = None

    def draw(self, dice: Random) -> Sequence[Step]:
        return [
            Step(
                dice.choice((0.2, 0.7, 2.0, 6.0)) * self.unit_s,
                dice.choices(list(self.STEPS), list(self.STEPS.values()))[0],
                "",
                dice.getrandbits(32),
            )
            for _ in range(STEPS)
        ]

    async def play(self) -> None:
        with ExitStack() as stack:
            root = Path(tempfile.mkdtemp(prefix="spyweb-sim-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            stack.enter_context(closing_all_of(root))
            self.disk = Disk(root, self.dice, self.latencies_s)
            stack.enter_context(self._in_virtual_time())
            await super().play()

    @contextmanager
    def _in_virtual_time(self) -> Iterator[None]:
        """Do in the loop what threads do otherwise; where time passes quickly, look less often at what may change."""
        with ExitStack() as stack:
            for module, name, value in (
                (store, "Connection", SimpleNamespace(open=self._connect)),
                (store, "PAGES_BETWEEN_CHECKPOINTS", self.pages),
                (checkpoints, "ROWS", 1 << 60),
                (checkpoints, "BATCHES", 1 << 60),
                (asyncio, "to_thread", inline),
                (swap, "scan", self._scan),
                (scheduler, "LOOK_AT_CLOCK_EVERY", 3.0 * self.unit_s),
                (alerts_watcher, "LONGEST_S", 60.0 * self.unit_s),
            ):
                stack.enter_context(patch.object(module, name, value))
            yield

    async def _connect(self, connect: Callable[[], Any]) -> Any:
        return await self.disk.connect(self.clock, connect)

    def _scan(self, *_: object) -> Scan:
        jobs = {job: file for job, file in self.files.items() if job not in self.broken_files}
        broken = {
            job: (Problem(f"jobs/{job}.lua", 1, None, "unclear"),) for job in self.files if job in self.broken_files
        }
        return Scan(jobs=jobs, broken=broken, unsure={}, problems=(), warnings=())

    async def begin(self) -> None:
        self.machine = Machine(self.dice, self.start_ms - START_MS)
        self.truth.now_ms = lambda: MachineClock(self.machine).now_ms()
        self.disk.on_death = self._died
        self.disk.on_commit = lambda raw: self.judge(partial(self.truth.commits_alone, raw))
        self._start()

    def _start(self) -> None:
        self.clock = MachineClock(self.machine)
        self.truth.life += 1
        self.truth.running.clear()
        self.tasks.create_task(self._live(AloneDaemon(self, self.clock)))

    async def _live(self, daemon: AloneDaemon) -> None:
        try:
            await daemon.open()
        except SpywebError as error:
            self.tell(f"the start fails: {str(error).rpartition(': ')[2]}")
            if daemon.is_alive:
                self.disk.leave()
                self._died("it ends", 1.0)
        else:
            self.tell("started")
            self.daemon = daemon

    def _died(self, what: str, seconds: float | None = None) -> None:
        """The process is dead; another starts after a while."""
        self.tell(what)
        self.tally["crashes"] += 1
        self.machine.boots += 1
        self.daemon = None
        down_s = self.dice.choice((0.1, 1.0, 4.0, 40.0)) * self.unit_s if seconds is None else seconds
        self.loop.call_later(down_s, partial(self.machine.call, self.machine.boots, self._start))

    def end_all(self) -> None:
        self.tally["commits"] = self.disk.commits
        self.machine.boots += 1
        for raw in self.disk.open:
            raw.close()

    def begins(self, daemon: AloneDaemon, run: Run) -> None:
        self.tally["runs"] += 1
        if job := daemon.parts.live.find(run.job):
            self.judge(partial(self.truth.begins_alone, self.disk.open[0], job.spec, run))

    async def receive(self, daemon: AloneDaemon, message: QueuedMessage) -> DeliveryFailure | None:
        """Receive a message, or not; the answer may come late."""
        await daemon.clock.sleep(self.dice.choice((0.01, 0.3, 3.0)))
        how = self.receiver if self.receiver != "moody" else self.dice.choice(("well", "refuses", "away"))
        if how == "refuses":
            self.truth.refused.add(message.delivery)
            return DeliveryFailure(reason="answered 400", holds=False, is_refused=True)
        if how == "away":
            return DeliveryFailure(reason="no answer")
        if message.target.channel is Channel.ALERT:
            self.judge(partial(self.truth.tells, message))
        text = bytes(message.payload).decode()
        self.judge(partial(self.truth.arrives, message, text))
        await daemon.clock.sleep(self.dice.choice((0.01, 0.3)))
        return None

    async def recover(self) -> None:
        self.disk.mend()
        self.receiver = "well"
        self.broken_files.clear()
        if self.seed % 3 == 0:
            self.machine.offset_ms -= SET_BACK * self.unit_s * 1000
            self.truth.was_set += 1
        quiet = 0
        while quiet < QUIET:
            await asyncio.sleep(10 * self.unit_s + 20)
            quiet = quiet + 10 if self.daemon else 0
            if self.daemon:
                self.daemon.reloader.wake()
        late_ms = {
            job: 3 * file.spec.schedule.period_ms + 20_000
            for job, file in self.original.items()
            if job in STEADY and isinstance(file.spec.schedule, Every)
        }
        daemon = self.daemon
        assert daemon, "no daemon lives"
        under_way = {run.id for run in daemon.parts.runner.under_way()}
        self.judge(partial(self.truth.recovered_alone, self.disk.open[0], under_way, late_ms))
        audit = RunAuditService(store=daemon.store, clock=daemon.clock, live=daemon.parts.live)
        self.judge(partial(self.truth.audited, await audit.audit(0)))

    # what may happen

    def fail_disk(self, where: str, dice: Random) -> None:
        how, number = dice.choice(HOW), dice.randint(1, 40)
        number = number if how.startswith("statement") else 1 + number // 8
        if where:
            how, number = where.rsplit(maxsplit=1)[0], int(where.rsplit(maxsplit=1)[1])
        self.tell(f"  {how}, number {number}")
        self.disk.arm(how, number)

    def slow_disk(self, _where: str, dice: Random) -> None:
        self.disk.latency_s = dice.choice((self.latencies_s, (0.1, 1.0, 7.0)))

    def lock_database(self, _where: str, dice: Random) -> None:
        self.disk.is_busy = True
        self.loop.call_later(dice.choice((0.2, 2.0, 9.0)), partial(setattr, self.disk, "is_busy", False))

    def kill(self, _where: str, _dice: Random) -> None:
        if self.disk.open:
            self.disk.leave()
            self._died("killed")

    def stop(self, _where: str, _dice: Random) -> None:
        if daemon := self.daemon:

            async def stop() -> None:
                await daemon.stop()
                if daemon.is_alive:
                    self.disk.leave()
                    self._died("stopped")

            self.machine.call(self.machine.boots, lambda: self.spawn(stop()))

    def freeze(self, _where: str, dice: Random) -> None:
        self.machine.freeze(dice.choice((0.1, 2.0, 10.0)) * self.unit_s)

    def set_clock(self, _where: str, dice: Random) -> None:
        by_ms = round(dice.choice((-30.0, -3.0, -0.5, 0.5, 3.0, 30.0)) * self.unit_s * 1000)
        self.tell(f"  by {by_ms} ms")
        self.truth.was_set += 1
        self.machine.offset_ms += by_ms

    def edit(self, _where: str, dice: Random) -> None:
        """Save, remove, rename, break or put back a file, or remove it for a moment."""
        files = dict(self.files)
        how = dice.choice(("schedule", "code", "remove", "rename", "break", "off", "blink", "blink"))
        known, running = files.keys() | self.original.keys(), self.daemon.parts.live.running() if self.daemon else ()
        busy = {run.job for run in running} & files.keys() - {*STEADY} if how == "blink" else set()
        job = dice.choice(sorted(busy or known - {*STEADY}))
        file = files.pop(job, None)
        self.tell(f"  {how} {job}")
        if file is None:
            files[job] = self.original[job]
        elif how == "rename":
            new = JobId(f"{job}x")
            if new not in files and not job.endswith("x"):
                files[new] = replace(file, spec=replace(file.spec, id=new, name=new, path=f"jobs/{new}.lua"))
        elif how == "break":
            files[job] = file
            self.broken_files ^= {job}
        elif how == "blink":
            self.loop.call_later(dice.choice((0.1, 0.8)), lambda: self._save({**self.files, job: file}))
        elif how != "remove":
            other = dice.choice([each for each in self.original.values() if each.spec.id.startswith("any")]).spec
            spec = replace(file.spec, schedule=other.schedule) if how == "schedule" else file.spec
            spec = replace(spec, enabled=not spec.enabled) if how == "off" else spec
            files[job] = file_of(spec, next(self._versions) if how == "code" else 1)
        self._save(files)

    def _save(self, files: dict[JobId, JobFile]) -> None:
        self.files = files
        if daemon := self.daemon:
            self.machine.call(self.machine.boots, daemon.reloader.wake)

    def _with_job(self, dice: Random, call: Callable[[AloneDaemon, Any], Any], *, steady: bool) -> None:
        if (daemon := self.daemon) and (jobs := [job for job in daemon.parts.live if steady or job.id not in STEADY]):
            job = dice.choice(jobs)
            self.tell(f"  {job.id}")
            self.machine.call(self.machine.boots, lambda: call(daemon, job))

    def pause(self, _where: str, dice: Random) -> None:
        self._with_job(dice, lambda daemon, job: self.spawn(daemon.parts.scheduler.pause(job)), steady=False)

    def resume(self, _where: str, dice: Random) -> None:
        self._with_job(dice, lambda daemon, job: self.spawn(daemon.parts.scheduler.resume(job)), steady=False)

    def cancel(self, _where: str, dice: Random) -> None:
        if (daemon := self.daemon) and (running := daemon.parts.live.running()):
            run = dice.choice(running).id
            self.machine.call(self.machine.boots, lambda: daemon.parts.runner.cancel(run))

    def start_by_hand(self, _where: str, dice: Random) -> None:
        async def start(daemon: AloneDaemon, job: Any) -> None:
            await daemon.parts.runner.start_by_hand(job, BY_HAND)

        self._with_job(dice, lambda daemon, job: self.spawn(start(daemon, job)), steady=True)

    def change_receiver(self, _where: str, dice: Random) -> None:
        self.receiver = dice.choice(("well", "moody", "away", "refuses"))
        self.tell(f"  {self.receiver}")
