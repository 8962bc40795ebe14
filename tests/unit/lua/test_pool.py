from __future__ import annotations

import asyncio
import errno
from asyncio import Future, Task
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from spyweb.clock import Clock
from spyweb.errors import PoolError, ScriptError
from spyweb.limits import LOG_BYTES_PER_S
from spyweb.lua import wire, worker_process
from spyweb.lua.pool import PATIENCE, Pool, open_pool, raise_compile_error
from spyweb.lua.session import Code, EngineInfo, Request
from spyweb.lua.slots import Slots
from spyweb.lua.wire import Ended, Form, InitWorker, Why
from spyweb.model import MIB, Ending, Failure, Isolation, JobId, Outcome, RunId
from tests.fakes.clock import FakeClock
from tests.fakes.worker import SLOW, TYPO, FakeSpawner, FakeWorker

PRICES = JobId("prices")
NEWS = JobId("news")
WEATHER = JobId("weather")


class Echo:
    """A host whose only op gives back what it was given; `wait` never ends."""

    def __init__(self) -> None:
        self.pending: Future[Sequence[object]] | None = None
        self.lines: list[bytes] = []

    def op(self, name: str, arguments: Sequence[object]) -> Awaitable[Sequence[object]]:
        future: Future[Sequence[object]] = asyncio.get_running_loop().create_future()
        if name == "wait":
            self.pending = future
        else:
            future.set_result(arguments)
        return future

    def log(self, level: str, text: bytes) -> None:
        self.lines.append(text)


@dataclass
class World:
    clock: FakeClock
    pool: Pool
    spawner: FakeSpawner
    host: Echo = field(default_factory=Echo)
    tasks: dict[int, Task[Ending]] = field(default_factory=dict)

    async def begin(self, run: int, code: Code, *, fresh: bool = False) -> Task[Ending]:
        request = Request(run=RunId(run), code=code, timeout_ms=60_000, cpu_limit_ms=10_000)
        task = self.tasks[run] = asyncio.create_task(self.pool.run(request, self.host, is_fresh=fresh))
        await self.clock.turn()
        return task

    async def finish(self, run: int, ended: Ended = Ended.SUCCESS, *, discarded: bool = False) -> Ending:
        self.worker_of(run).end(run, ended, discarded=discarded)
        await self.clock.turn()
        return self.ending(run)

    async def do(self, run: int, code: Code) -> Ending:
        """A run that ends well."""
        await self.begin(run, code)
        return await self.finish(run)

    def ending(self, run: int) -> Ending:
        return self.tasks[run].result()

    def worker_of(self, run: int) -> FakeWorker:
        """The one where it began last."""
        begun = {f"begin {run}", f"fresh {run}"}
        return next(worker for worker in reversed(self.spawner.workers) if begun & set(worker.story))

    async def kill(self, worker: FakeWorker, *stepping: int) -> None:
        """It dies while these runs are being stepped."""
        worker.step(*stepping)
        worker.die()
        await self.clock.turn()


def make_code(
    job: JobId = PRICES, generation: int = 1, source: bytes = b"", isolation: Isolation = Isolation.SHARED
) -> Code:
    return Code(job=job, generation=generation, chunk=f"jobs/{job}.lua", source=source, isolation=isolation)


@asynccontextmanager
async def open_world(workers: int = 2, memory_budget: int = 512 * MIB) -> AsyncIterator[World]:
    clock = FakeClock()
    spawner = FakeSpawner()

    def found(_clock: Clock, _timezone: str) -> FakeSpawner:
        return spawner

    info = EngineInfo(ops=["echo", "wait"], env={"A": "1"})
    async with open_pool(clock=clock, workers=workers, init=info, memory_budget=memory_budget, spawner=found) as pool:
        yield World(clock, pool, spawner)
        closing = asyncio.create_task(pool.stop(0))
        await clock.turn(10)
        await closing


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as made:
        yield made


# Runs and VMs


async def test_workers_are_told_about_the_engine_before_anything_else(world: World) -> None:
    assert [worker.init for worker in world.spawner.workers] == [InitWorker(["echo", "wait"], {}, {"A": "1"})] * 2


async def test_a_run_loads_its_vm_then_begins_then_ends(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)
    assert worker.story == ["load jobs/prices.lua as 1", "begin 1"]

    ending = await world.finish(1)

    assert (ending.outcome, ending.cpu_ms, ending.globals_reset) == (Outcome.SUCCESS, 7, False)


async def test_the_second_run_finds_the_vm_loaded(world: World) -> None:
    await world.do(1, make_code())
    await world.do(2, make_code())

    assert world.worker_of(2).story == ["load jobs/prices.lua as 1", "begin 1", "begin 2"]
    assert world.pool.stats().loads == 1


async def test_runs_that_arrive_while_the_vm_loads_wait_for_that_load(world: World) -> None:
    code = make_code(source=SLOW)
    await world.begin(1, code)
    await world.begin(2, code)
    (worker,) = [worker for worker in world.spawner.workers if worker.story]
    assert worker.story == ["load jobs/prices.lua as 1"]

    worker.loaded(1)
    await world.clock.turn()

    assert worker.story[1:] == ["begin 1", "begin 2"]


async def test_a_script_that_does_not_compile_is_a_failed_run(world: World) -> None:
    await world.begin(1, make_code(source=TYPO))

    ending = world.ending(1)
    assert (ending.outcome, ending.failure, ending.reason) == (
        Outcome.FAILED,
        Failure.ERROR,
        "jobs/prices.lua:3: syntax error",
    )
    assert not any(worker.vms for worker in world.pool.stats().workers)


async def test_jobs_spread_over_the_workers_and_stay_where_they_are(world: World) -> None:
    for run, job in enumerate([PRICES, NEWS, PRICES, NEWS], 1):
        await world.do(run, make_code(job))

    assert world.worker_of(1) is world.worker_of(3)
    assert world.worker_of(2) is world.worker_of(4)
    assert world.worker_of(1) is not world.worker_of(2)


async def test_ops_are_answered_by_the_host_of_their_run(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)

    worker.op(1, "echo", b"x", 2)
    await world.clock.turn()

    assert worker.answers == [[Form.PLAIN, b"x", 2]]


async def test_an_op_of_a_run_that_is_over_is_dropped(world: World) -> None:
    await world.do(1, make_code())
    worker = world.worker_of(1)

    worker.op(1, "echo", b"x")
    worker.end(1)
    await world.clock.turn()

    assert not worker.answers


async def test_two_runs_of_one_number_at_once_are_refused(world: World) -> None:
    await world.begin(1, make_code())
    second = await world.begin(1, make_code())

    assert isinstance(second.exception(), ValueError)


async def test_a_discarded_vm_is_replaced_at_the_next_run(world: World) -> None:
    await world.begin(1, make_code())
    ending = await world.finish(1, Ended.CPU, discarded=True)
    assert (ending.failure, ending.globals_reset) == (Failure.CPU, True)

    await world.do(2, make_code())

    assert world.pool.stats().loads == 2
    assert sum(worker.vms for worker in world.pool.stats().workers) == 1


async def test_a_run_whose_vm_was_gone_begins_in_another(world: World) -> None:
    await world.begin(1, make_code())
    first = world.worker_of(1)

    first.end(1, Ended.UNBEGUN, discarded=True)
    await world.clock.turn()

    assert not world.tasks[1].done()
    assert world.pool.stats().loads == 2
    assert (await world.finish(1)).outcome is Outcome.SUCCESS


async def test_a_run_that_finds_no_vm_again_and_again_is_lost(world: World) -> None:
    await world.begin(1, make_code())
    for _ in range(3):
        world.worker_of(1).end(1, Ended.UNBEGUN, discarded=True)
        await world.clock.turn()

    assert world.ending(1).outcome is Outcome.LOST


# Cancelling


async def test_a_timeout_cancels_the_run(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)
    worker.op(1, "wait")
    await world.clock.turn(60)

    assert worker.story[-1] == "cancel 1 timeout"
    assert world.host.pending is not None
    assert world.host.pending.cancelled()
    assert (await world.finish(1, Ended.TIMEOUT)).failure is Failure.TIMEOUT


async def test_cancelling_the_task_cancels_the_run_and_waits_until_it_has_ended(world: World) -> None:
    task = await world.begin(1, make_code())

    task.cancel()
    await world.clock.turn()
    assert world.worker_of(1).story[-1] == "cancel 1 cancelled"
    assert not task.done()

    world.worker_of(1).end(1, Ended.CANCELLED)
    await world.clock.turn()
    assert task.cancelled()


async def test_cancelling_the_task_twice_does_not_wait(world: World) -> None:
    task = await world.begin(1, make_code())

    for _ in range(2):
        task.cancel()
        await world.clock.turn()

    assert task.cancelled()
    world.worker_of(1).end(1, Ended.CANCELLED)
    assert (await world.do(2, make_code())).outcome is Outcome.SUCCESS


async def test_cancel_gives_the_ending_that_the_worker_tells(world: World) -> None:
    await world.begin(1, make_code())

    world.pool.cancel(RunId(1), Why.CANCELLED)
    await world.clock.turn()
    assert world.worker_of(1).story[-1] == "cancel 1 cancelled"

    assert (await world.finish(1, Ended.CANCELLED)).failure is Failure.CANCELLED


async def test_a_run_cancelled_while_its_vm_loads_never_begins(world: World) -> None:
    await world.begin(1, make_code(source=SLOW))

    world.pool.cancel(RunId(1), Why.CANCELLED)
    await world.clock.turn()
    assert world.ending(1).failure is Failure.CANCELLED

    for worker in world.spawner.workers:
        if worker.story:
            worker.loaded(1)
    await world.clock.turn()
    assert not any("begin 1" in worker.story for worker in world.spawner.workers)


async def test_cancelling_a_run_that_is_over_does_nothing(world: World) -> None:
    await world.do(1, make_code())

    world.pool.cancel(RunId(1), Why.CANCELLED)
    await world.clock.turn()

    assert not any("cancel" in line for worker in world.spawner.workers for line in worker.story)


# Generations


async def test_a_new_generation_has_a_vm_of_its_own(world: World) -> None:
    await world.do(1, make_code(generation=1))
    await world.do(2, make_code(generation=2))

    assert world.pool.stats().loads == 2


async def test_a_retired_vm_goes_with_its_last_run(world: World) -> None:
    await world.begin(1, make_code(generation=1))
    worker = world.worker_of(1)

    world.pool.retire(PRICES, older_than=2)
    await world.clock.turn()
    assert "drop 1" not in worker.story

    await world.finish(1)
    await world.clock.turn()
    assert worker.story[-1] == "drop 1"


async def test_an_idle_vm_is_dropped_as_soon_as_it_is_retired(world: World) -> None:
    await world.do(1, make_code(generation=1))
    await world.do(2, make_code(NEWS))
    worker = world.worker_of(1)

    world.pool.retire(PRICES, older_than=2)
    await world.clock.turn()

    assert worker.story[-1] == "drop 1"
    assert sum(info.vms for info in world.pool.stats().workers) == 1


async def test_a_vm_retired_while_it_loads_serves_whom_it_was_loaded_for(world: World) -> None:
    await world.begin(1, make_code(source=SLOW))
    (worker,) = [worker for worker in world.spawner.workers if worker.story]

    world.pool.retire(PRICES, older_than=2)
    worker.loaded(1)
    await world.clock.turn()
    assert worker.story[-1] == "begin 1"

    await world.finish(1)
    await world.clock.turn()
    assert worker.story[-1] == "drop 1"


async def test_a_late_run_of_a_retired_generation_leaves_no_vm_behind(world: World) -> None:
    world.pool.retire(PRICES, older_than=2)

    await world.do(1, make_code(generation=1))
    await world.clock.turn()

    assert world.worker_of(1).story[-1] == "drop 1"
    assert not any(info.vms for info in world.pool.stats().workers)


async def test_a_retired_vm_that_is_held_serves_every_call_of_its_version_until_it_is_let_go(world: World) -> None:
    with world.pool.holding(make_code()), world.pool.holding(make_code()):
        await world.do(1, make_code())
        world.pool.retire(PRICES, older_than=2)
        await world.do(2, make_code())
        await world.do(3, make_code(generation=2))
        assert world.pool.stats().loads == 2
        assert not any("drop 1" in worker.story for worker in world.spawner.workers)

    await world.clock.turn()
    assert [worker.story.count("drop 1") for worker in world.spawner.workers if worker.story].count(1) == 1
    assert sum(info.vms for info in world.pool.stats().workers) == 1


async def test_a_vm_that_was_held_and_is_still_wanted_stays(world: World) -> None:
    with world.pool.holding(make_code()):
        await world.do(1, make_code())
    await world.do(2, make_code())

    assert world.pool.stats().loads == 1


async def test_check_names_file_line_and_reason(world: World) -> None:
    checking = asyncio.create_task(world.pool.check(make_code(source=TYPO)))
    await world.clock.turn()

    error = checking.exception()
    assert isinstance(error, ScriptError)
    assert (error.problem.file, error.problem.line, error.problem.reason) == ("jobs/prices.lua", 3, "syntax error")


@pytest.mark.parametrize(
    ("shown", "file"),
    [
        ("...long-name/hooks.lua:3: syntax error", "jobs/a-very-long-name/hooks.lua"),
        ("...long-name/defer.lua:3: syntax error", "jobs/a-very-long-name/defer.lua"),
        ("...\ufffd\ufffdng-name/defer.lua:3: syntax error", "jobs/a-very-long-name/defer.lua"),
        ("...ls/other.lua:3: syntax error", "...ls/other.lua"),
    ],
)
def test_a_file_whose_path_lua_has_cut_short_is_named_whole(shown: str, file: str) -> None:
    folder = "jobs/a-very-long-name"
    code = Code(job=PRICES, generation=1, chunk=f"{folder}/hooks.lua", source=b"", more=((f"{folder}/defer.lua", b""),))

    with pytest.raises(ScriptError) as caught:
        raise_compile_error(code, shown)

    assert (caught.value.problem.file, caught.value.problem.line) == (file, 3)


async def test_check_leaves_no_vm_behind(world: World) -> None:
    await world.pool.check(make_code(source=b"return 1"))
    await world.clock.turn()

    assert [worker.story for worker in world.spawner.workers] == [["check jobs/prices.lua as 1"], []]


async def test_code_without_a_line_of_lua_is_fine_and_costs_no_vm(world: World) -> None:
    await world.pool.check(make_code())
    await world.clock.turn()

    assert [worker.story for worker in world.spawner.workers] == [[], []]


async def test_check_sends_every_file(world: World) -> None:
    code = replace(make_code(), more=(("jobs/prices/defer.lua", b"return 2"),))
    await world.pool.check(code)

    assert [worker.files for worker in world.spawner.workers] == [[["jobs/prices/defer.lua"]], []]


# Fresh VMs, and spare ones


async def test_ids_for_calls_that_are_not_recorded_never_meet_those_of_runs(world: World) -> None:
    first, second = world.pool.new_id(), world.pool.new_id()

    assert 1 << 52 < first < second < 1 << 53  # each a number that Lua can hold exactly


async def test_a_fresh_run_is_begun_in_a_vm_that_its_worker_makes_and_drops_by_itself(world: World) -> None:
    await world.begin(1, make_code(), fresh=True)
    await world.finish(1)
    await world.begin(2, make_code(), fresh=True)
    await world.finish(2)
    await world.clock.turn()

    stories = [worker.story for worker in world.spawner.workers]
    assert stories == [["template 1", "fresh 1", "fresh 2"], []]
    assert world.ending(2).outcome is Outcome.SUCCESS
    assert [worker.vms for worker in world.pool.stats().workers] == [0, 0]


async def test_fresh_runs_at_once_are_spread_over_the_workers(world: World) -> None:
    await world.begin(1, make_code(), fresh=True)
    await world.begin(2, make_code(), fresh=True)

    assert [worker.story for worker in world.spawner.workers] == [["template 1", "fresh 1"], ["template 1", "fresh 2"]]


async def test_a_fresh_run_that_is_cancelled_tells_its_worker(world: World) -> None:
    await world.begin(1, make_code(), fresh=True)
    world.pool.cancel(RunId(1), Why.CANCELLED)
    await world.clock.turn()

    assert world.worker_of(1).story == ["template 1", "fresh 1", "cancel 1 cancelled"]


async def test_spares_are_kept_of_the_newest_code_alone(world: World) -> None:
    world.pool.keep_spares(make_code(generation=1, isolation=Isolation.PROCESS), 2)
    world.pool.keep_spares(make_code(generation=2, isolation=Isolation.PROCESS), 2)
    await world.clock.turn(3)
    await world.begin(1, make_code(generation=2, isolation=Isolation.PROCESS), fresh=True)

    assert world.worker_of(1).story == ["template 1", "drop 1", "template 2", "fresh 1"]


async def test_a_worker_of_its_own_stays_as_long_as_there_are_spares_in_it(world: World) -> None:
    code = make_code(isolation=Isolation.PROCESS)
    world.pool.keep_spares(code, 1)
    await world.clock.turn(3)
    await world.begin(1, code, fresh=True)
    await world.finish(1)
    own = world.worker_of(1)
    assert own.story == ["template 1", "fresh 1"]
    world.pool.retire(PRICES, 2)
    await world.clock.turn()

    assert own.story[-1] == "killed"


async def test_the_template_of_a_fresh_run_stays_until_that_has_ended_though_a_newer_one_has_come(world: World) -> None:
    await world.begin(1, make_code(isolation=Isolation.PROCESS), fresh=True)
    await world.begin(2, make_code(generation=2, isolation=Isolation.PROCESS), fresh=True)
    own = world.worker_of(1)
    assert own.story == ["template 1", "fresh 1", "template 3", "fresh 2"]

    await world.finish(1)
    assert own.story[4:] == ["drop 1"]


async def test_a_fresh_run_whose_worker_knew_no_template_is_begun_again(world: World) -> None:
    await world.begin(1, make_code(), fresh=True)
    world.worker_of(1).end(1, Ended.UNBEGUN, discarded=True)
    await world.clock.turn()
    await world.finish(1)

    assert world.ending(1).outcome is Outcome.SUCCESS
    stories = [line.split()[0] for worker in world.spawner.workers for line in worker.story]
    assert (stories.count("fresh"), world.pool.stats().loads) == (2, 0)


async def test_after_the_death_of_its_worker_a_job_with_spares_is_served_by_another(world: World) -> None:
    code = make_code(isolation=Isolation.PROCESS)
    world.pool.keep_spares(code, 1)
    await world.clock.turn(3)
    await world.begin(1, code, fresh=True)
    first = world.worker_of(1)
    await world.kill(first, 1)
    await world.begin(2, code, fresh=True)
    await world.clock.turn(5)

    assert world.ending(1).guilty
    assert world.worker_of(2) is not first
    assert (await world.finish(2)).outcome is Outcome.SUCCESS


# Loss


async def test_after_a_death_the_one_being_stepped_is_guilty_and_the_others_are_not(world: World) -> None:
    await world.begin(1, make_code(PRICES))
    await world.begin(2, make_code(NEWS))
    await world.begin(3, make_code(WEATHER))
    worker = world.worker_of(1)
    assert world.worker_of(3) is worker

    await world.kill(worker, 3)

    innocent, guilty = world.ending(1), world.ending(3)
    assert (innocent.outcome, innocent.guilty) == (Outcome.LOST, False)
    assert (guilty.outcome, guilty.guilty) == (Outcome.LOST, True)
    assert "it was ended by SIGKILL" in guilty.reason
    assert not world.tasks[2].done()
    assert list(world.pool.stats().quarantined) == [WEATHER]
    assert world.pool.stats().deaths == 1


async def test_a_dead_worker_is_replaced(world: World) -> None:
    await world.kill(world.spawner.workers[0])

    assert len(world.spawner.living) == 2
    assert (await world.do(1, make_code())).outcome is Outcome.SUCCESS


async def test_what_a_worker_said_before_it_died_counts(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)

    worker.end(1)
    worker.die()
    await world.clock.turn()

    assert world.ending(1).outcome is Outcome.SUCCESS


async def test_a_quarantined_job_runs_in_a_worker_of_its_own_until_a_clean_run(world: World) -> None:
    await world.begin(1, make_code())
    await world.kill(world.worker_of(1), 1)

    await world.begin(2, make_code())
    own = world.worker_of(2)
    assert [info.job for info in world.pool.stats().workers].count(PRICES) == 1
    await world.finish(2, Ended.ERROR)
    await world.begin(3, make_code())
    assert world.worker_of(3) is own

    ending = await world.finish(3)
    assert ending.globals_reset  # it goes back to a shared worker, in a fresh VM
    await world.clock.turn(1)
    assert own.child.exited.done()
    assert not world.pool.stats().quarantined

    await world.do(4, make_code())
    assert world.worker_of(4) is not own
    assert [info.job for info in world.pool.stats().workers] == [None, None]


async def test_a_new_generation_is_out_of_quarantine(world: World) -> None:
    await world.begin(1, make_code(generation=1))
    await world.kill(world.worker_of(1), 1)
    await world.do(2, make_code(NEWS))

    await world.begin(3, make_code(generation=2))

    assert [info.job for info in world.pool.stats().workers] == [None, None]


async def test_nobody_is_guilty_when_the_zygote_dies(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)
    worker.step(1)

    worker.die("its zygote died", with_zygote=True)
    await world.clock.turn()

    assert (world.ending(1).outcome, world.ending(1).guilty) == (Outcome.LOST, False)
    assert not world.pool.stats().quarantined


async def test_a_worker_that_answers_no_ping_is_killed(world: World) -> None:
    await world.begin(1, make_code())
    frozen = world.worker_of(1)
    frozen.answers_pings = False
    frozen.step(1)

    await world.clock.turn(1.4)
    assert not world.tasks[1].done()

    await world.clock.turn(1.1)
    assert frozen.story[-1] == "killed"
    ending = world.ending(1)
    assert (ending.outcome, ending.guilty) == (Outcome.LOST, True)
    assert "no ping" in ending.reason


async def test_a_worker_too_busy_to_answer_pings_lives_on_while_it_talks(world: World) -> None:
    await world.begin(1, make_code())
    busy = world.worker_of(1)
    busy.answers_pings = False

    for _ in range(10):
        await world.clock.turn(1)
        busy.say(wire.ScriptLog(1, "info", b"still here"))
    await world.clock.turn(0.1)

    assert world.pool.stats().deaths == 0


async def test_workers_that_answer_live_on(world: World) -> None:
    await world.clock.turn(60)

    assert world.spawner.forks == 2
    assert world.pool.stats().deaths == 0


async def test_a_pause_of_the_daemon_itself_kills_nobody(world: World) -> None:
    world.clock.advance(30)  # nothing was read meanwhile
    await world.clock.turn(2)

    assert world.pool.stats().deaths == 0


async def test_a_worker_that_breaks_the_protocol_is_killed(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)

    worker.say_bytes(b"\xff\xff\xff\xff not a frame")
    await world.clock.turn(1)

    assert worker.story[-1] == "killed"
    assert world.ending(1).outcome is Outcome.LOST


async def test_a_run_over_its_timeout_when_its_worker_dies_is_failed(world: World) -> None:
    await world.begin(1, make_code())
    await world.clock.turn(60)

    await world.kill(world.worker_of(1), 1)

    assert (world.ending(1).outcome, world.ending(1).failure) == (Outcome.FAILED, Failure.TIMEOUT)
    assert list(world.pool.stats().quarantined) == [PRICES]


# A run that can't be stopped


async def test_a_stuck_run_fails_at_once_and_the_others_may_finish(world: World) -> None:
    await world.begin(1, make_code(PRICES))
    await world.begin(2, make_code(NEWS))
    await world.begin(3, make_code(WEATHER))
    worker = world.worker_of(1)

    worker.stuck(1)
    await world.clock.turn(0.5)

    assert (world.ending(1).outcome, world.ending(1).failure) == (Outcome.FAILED, Failure.CPU)
    assert not worker.child.exited.done()
    assert not world.tasks[3].done()

    assert (await world.finish(3)).outcome is Outcome.SUCCESS
    await world.clock.turn()
    assert worker.story[-1] == "killed"
    assert len(world.spawner.living) == 2
    assert list(world.pool.stats().quarantined) == [PRICES]


async def test_a_stuck_worker_takes_no_new_runs(world: World) -> None:
    await world.begin(1, make_code(PRICES))
    await world.begin(2, make_code(NEWS))
    await world.begin(3, make_code(WEATHER))
    worker = world.worker_of(1)
    worker.stuck(1)
    await world.clock.turn()

    await world.begin(4, make_code(WEATHER))

    assert world.worker_of(4) is not worker
    assert (await world.finish(4)).outcome is Outcome.SUCCESS


async def test_the_others_on_a_stuck_worker_are_lost_after_a_grace_and_innocent(world: World) -> None:
    await world.begin(1, make_code(PRICES))
    await world.begin(2, make_code(NEWS))
    await world.begin(3, make_code(WEATHER))
    worker = world.worker_of(1)
    worker.step(1, 3)

    worker.stuck(1)
    await world.clock.turn(1.1)

    assert worker.story[-1] == "killed"
    assert (world.ending(3).outcome, world.ending(3).guilty) == (Outcome.LOST, False)
    assert list(world.pool.stats().quarantined) == [PRICES]


async def test_the_replacement_starts_before_the_kill(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)
    world.spawner.is_mute = True  # it is forked, and not ready

    worker.stuck(1)
    await world.clock.turn(5)
    assert "killed" not in worker.story

    world.spawner.is_mute = False
    await world.clock.turn(10)
    assert "killed" in worker.story


async def test_a_stuck_run_that_timed_out_failed_with_its_timeout(world: World) -> None:
    await world.begin(1, make_code())
    await world.clock.turn(60)

    world.worker_of(1).stuck(1)
    await world.clock.turn()

    assert world.ending(1).failure is Failure.TIMEOUT


async def test_a_worker_that_cannot_even_say_that_it_is_stuck_is_replaced(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)
    world.pool.cancel(RunId(1), Why.CANCELLED)

    await world.clock.turn(5)

    assert world.ending(1).failure is Failure.CANCELLED
    assert worker.child.exited.done()


async def test_what_waits_for_its_vm_on_a_stuck_worker_begins_elsewhere(world: World) -> None:
    await world.begin(1, make_code(PRICES))
    await world.begin(2, make_code(NEWS))
    worker = world.worker_of(1)
    await world.begin(3, make_code(WEATHER, source=SLOW))
    assert worker.story[-1] == "load jobs/weather.lua as 2"

    worker.stuck(1)
    await world.clock.turn()
    elsewhere = next(each for each in world.spawner.living if "load jobs/weather.lua as 2" in each.story[1:])
    assert elsewhere is not worker
    elsewhere.loaded(2)
    await world.clock.turn()

    assert (await world.finish(3)).outcome is Outcome.SUCCESS


# Workers of their own


async def test_an_isolated_job_has_a_worker_of_its_own(world: World) -> None:
    code = make_code(isolation=Isolation.PROCESS)
    await world.do(1, code)
    await world.do(2, code)
    await world.do(3, make_code(NEWS))

    assert world.worker_of(1) is world.worker_of(2)
    assert world.worker_of(3) is not world.worker_of(1)
    assert [info.job for info in world.pool.stats().workers] == [None, None, PRICES]


async def test_the_worker_of_an_isolated_job_goes_with_its_last_vm(world: World) -> None:
    await world.do(1, make_code(isolation=Isolation.PROCESS))

    world.pool.retire(PRICES, older_than=2)
    await world.clock.turn(1)

    assert world.worker_of(1).child.exited.done()
    assert world.pool.stats().deaths == 0
    assert len(world.pool.stats().workers) == 2


async def test_a_job_that_becomes_isolated_moves_at_its_next_run(world: World) -> None:
    await world.do(1, make_code())
    shared = world.worker_of(1)

    await world.do(2, make_code(isolation=Isolation.PROCESS))

    assert world.worker_of(2) is not shared
    assert shared.story[-1] == "drop 1"


async def test_above_its_memory_budget_a_workers_largest_vm_moves_out() -> None:
    async with open_world(workers=1, memory_budget=100 * MIB) as world:
        await world.do(1, make_code(PRICES))
        await world.do(2, make_code(NEWS))
        worker = world.worker_of(1)
        worker.used, worker.largest = 130 * MIB, [(2, 90 * MIB), (1, 40 * MIB)]

        await world.clock.turn(0.6)
        assert worker.story[-1] == "drop 2"
        await world.clock.turn(2)  # it still counts until it is closed
        assert "drop 1" not in worker.story

        await world.do(3, make_code(NEWS))
        assert world.worker_of(3) is not worker
        await world.do(4, make_code(NEWS))
        assert world.worker_of(4) is world.worker_of(3)
        await world.do(5, make_code(PRICES))
        assert world.worker_of(5) is worker
        assert "memory budget" in world.pool.stats().quarantined[NEWS]


# Workers that can't be had


async def test_no_worker_at_all_is_a_pool_error() -> None:
    clock = FakeClock()
    spawner = FakeSpawner()
    spawner.trouble = "no processes left"

    async def enter() -> None:
        async with open_pool(clock=clock, workers=2, init=EngineInfo(ops=[]), spawner=lambda _c, _t: spawner):
            pass

    entering = asyncio.create_task(enter())
    await clock.turn(30)

    error = entering.exception()
    assert isinstance(error, PoolError)
    assert "no processes left" in str(error)


async def test_forks_that_fail_are_tried_again_ever_more_slowly(world: World) -> None:
    world.spawner.trouble = "no processes left"
    await world.kill(world.spawner.workers[0])

    await world.clock.turn(60)
    assert 10 < world.spawner.forks < 30

    world.spawner.trouble = ""
    await world.clock.turn(6)
    assert len(world.spawner.living) == 2


async def test_a_dead_worker_is_replaced_as_soon_as_there_are_descriptors_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Slots:
        raise OSError(errno.EMFILE, "Too many open files")

    await world.begin(1, make_code())
    with monkeypatch.context() as out_of_descriptors:
        out_of_descriptors.setattr(worker_process, "Slots", refuse)
        await world.kill(world.worker_of(1), 1)
        await world.clock.turn(2)
    assert world.ending(1).outcome is Outcome.LOST
    assert world.spawner.forks == 2

    await world.clock.turn(5)

    assert world.spawner.forks == 3
    assert all(worker.pid for worker in world.pool.stats().workers)


async def test_forks_may_fail_for_hours(world: World) -> None:
    world.spawner.trouble = "no processes left"
    for worker in list(world.spawner.living):
        await world.kill(worker)
    await world.clock.turn(3000)

    world.spawner.trouble = ""
    await world.clock.turn(6)
    assert world.spawner.forks > 1024  # two to that power is no float any more
    assert len(world.spawner.living) == 2


async def test_a_run_that_gets_no_worker_in_time_raises_the_reason() -> None:
    async with open_world(workers=1) as world:
        world.spawner.trouble = "no processes left"
        await world.kill(world.spawner.workers[0])
        task = await world.begin(1, make_code())

        await world.clock.turn(PATIENCE + 1)

        error = task.exception()
        assert isinstance(error, PoolError)
        assert "no processes left" in str(error)


async def test_a_run_waits_for_a_worker_that_is_being_born() -> None:
    async with open_world(workers=1) as world:
        world.spawner.trouble = "no processes left"
        await world.kill(world.spawner.workers[0])
        await world.begin(1, make_code())
        world.spawner.trouble = ""

        await world.clock.turn(5)

        assert (await world.finish(1)).outcome is Outcome.SUCCESS


async def test_a_worker_that_never_gets_ready_is_given_up(world: World) -> None:
    world.spawner.is_mute = True
    await world.kill(world.spawner.workers[0])
    world.spawner.is_mute = False

    await world.clock.turn(12)

    assert world.spawner.workers[2].story == ["killed"]
    assert len(world.spawner.living) == 2


async def test_a_script_whose_loading_kills_workers_is_stopped_in_a_worker_of_its_own() -> None:
    async with open_world(workers=1) as world:
        await world.clock.turn(1)
        await world.begin(1, make_code(source=SLOW))
        await world.kill(world.spawner.workers[0])
        assert not world.tasks[1].done()
        assert list(world.pool.stats().quarantined) == [PRICES]

        for _ in range(2):
            own = next(worker for worker in world.spawner.living if worker.story)
            await world.kill(own)
            await world.clock.turn(1)

        assert (world.ending(1).outcome, world.ending(1).guilty) == (Outcome.LOST, True)


# Logs and the end


async def test_log_lines_are_paid_back_at_a_bounded_rate(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)

    worker.log(1, 250)
    await world.clock.turn(0.021)
    assert len(world.host.lines) == 250
    assert worker.story[-1] == "credit 100"

    await world.clock.turn(0.1)
    assert [line for line in worker.story if "credit" in line] == ["credit 100", "credit 100", "credit 50"]


async def test_long_log_lines_are_paid_back_at_a_bounded_rate_of_bytes(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)

    worker.log(1, 200, bytes(16_000))  # 3.2 MB: three seconds at 1 MB/s
    await world.clock.turn(1.0)
    granted = sum(int(line.split()[1]) for line in worker.story if "credit" in line)
    assert granted * 16_000 == pytest.approx(LOG_BYTES_PER_S, rel=0.05)

    await world.clock.turn(3.0)
    assert sum(int(line.split()[1]) for line in worker.story if "credit" in line) == 200


async def test_a_planned_stop_lets_runs_end_within_the_grace(world: World) -> None:
    await world.begin(1, make_code())
    stopping = asyncio.create_task(world.pool.stop(10))
    await world.clock.turn(5)
    assert not any("cancel" in line for line in world.worker_of(1).story)

    ending = await world.finish(1)
    await world.clock.turn(1)

    assert ending.outcome is Outcome.SUCCESS
    assert stopping.done()


async def test_a_planned_stop_ends_the_rest_as_stopped(world: World) -> None:
    await world.begin(1, make_code(PRICES))
    await world.begin(2, make_code(NEWS))
    await world.begin(3, make_code(WEATHER, source=SLOW))
    stopping = asyncio.create_task(world.pool.stop(5))
    await world.clock.turn(5.1)
    worker = world.worker_of(1)
    assert worker.story[-1] == "cancel 1 stopped"
    worker.end(1, Ended.STOPPED)

    await world.clock.turn(5)

    assert [world.ending(run).outcome for run in (1, 2, 3)] == [Outcome.STOPPED] * 3
    assert stopping.done()
    assert not world.spawner.living
    assert not world.pool.stats().quarantined


async def test_a_run_asked_for_after_the_stop_is_stopped(world: World) -> None:
    await world.pool.stop(0)

    task = await world.begin(1, make_code())

    assert task.result().outcome is Outcome.STOPPED


async def test_a_worker_that_dies_during_the_stop_stops_its_runs(world: World) -> None:
    await world.begin(1, make_code())
    worker = world.worker_of(1)
    stopping = asyncio.create_task(world.pool.stop(10))
    await world.clock.turn(1)

    await world.kill(worker, 1)
    await world.clock.turn(1)

    assert world.ending(1).outcome is Outcome.STOPPED
    assert stopping.done()


async def test_an_error_of_the_caller_leaves_the_pool_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with open_world():
            raise KeyError
