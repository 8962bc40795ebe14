from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from spyweb import descriptors
from spyweb.errors import PoolError, ScriptError
from spyweb.limits import LOG_BYTES_PER_S
from spyweb.lua import wire, worker_process
from spyweb.lua.pool import PATIENCE, Quarantine, open_pool, raise_compile_error
from spyweb.lua.session import Code, EngineInfo, VariableRule
from spyweb.lua.spawner import Slots
from spyweb.lua.supervisor import DESCRIPTORS_EACH, SHARE, STARTING
from spyweb.lua.wire import Ended, Form, InitWorker, Why
from spyweb.model import MIB, Failure, Isolation, JobId, Outcome, RunId
from tests.fakes.clock import FakeClock
from tests.fakes.worker import SLOW, TYPO, FakeSpawner, FakeWorker
from tests.fakes.worker_pool import PRICES, PoolHarness, make_code, open_world

NEWS = JobId("news")
WEATHER = JobId("weather")
OWN = make_code(isolation=Isolation.PROCESS)  # has a worker of its own


@pytest.fixture
async def harness() -> AsyncIterator[PoolHarness]:
    async with open_world() as made:
        yield made


@pytest.fixture
async def worker(harness: PoolHarness) -> FakeWorker:
    """Where run 1 has begun."""
    await harness.begin(1, make_code())
    return harness.worker_of(1)


@pytest.fixture
async def shared(harness: PoolHarness) -> FakeWorker:
    """Where runs 1 and 3 have begun, of three."""
    for run, job in enumerate((PRICES, NEWS, WEATHER), start=1):
        await harness.begin(run, make_code(job))
    assert harness.worker_of(3) is harness.worker_of(1)
    return harness.worker_of(1)


# Runs and VMs
async def test_workers_are_told_about_the_engine_before_anything_else(harness: PoolHarness) -> None:
    assert [worker.init for worker in harness.spawner.workers] == [InitWorker(["echo", "wait"], {})] * 2


def test_a_worker_is_told_of_the_variables_that_a_vm_may_show_and_of_no_other() -> None:
    info = EngineInfo(ops=[], env={"ONE": "1", "TWO": "2"})
    rules = (VariableRule(frozenset({"ONE", "X"}), "no \0"), VariableRule(frozenset({"ONE", "TWO"}), "own \0"))
    told = info.variables_of(replace(make_code(), variables=rules))
    assert b"ONE" in told
    assert b"TWO" in told  # as a name of the second list
    assert b"\xa12" not in told  # its value
    assert info.variables_of(make_code()) == wire.pack([{"env": {"ONE": "1", "TWO": "2"}, "rules": []}])
    assert EngineInfo(ops=[]).variables_of(make_code()) == b""


async def test_a_run_loads_its_vm_then_begins_then_ends_and_the_next_finds_it_loaded(harness: PoolHarness) -> None:
    ending = await harness.do(1, make_code())
    assert (ending.outcome, ending.cpu_ms, ending.globals_reset) == (Outcome.SUCCESS, 7, False)
    await harness.do(2, make_code())

    assert harness.worker_of(2).story == ["load jobs/prices.lua as 1", "begin 1", "begin 2"]
    assert harness.pool.stats().loads == 1


async def test_runs_that_arrive_while_the_vm_loads_wait_for_that_load(harness: PoolHarness) -> None:
    code = make_code(source=SLOW)
    await harness.begin(1, code)
    await harness.begin(2, code)
    (worker,) = [worker for worker in harness.spawner.workers if worker.story]
    assert worker.story == ["load jobs/prices.lua as 1"]

    worker.loaded(1)
    await harness.clock.turn()

    assert worker.story[1:] == ["begin 1", "begin 2"]


async def test_a_script_that_does_not_compile_is_a_failed_run(harness: PoolHarness) -> None:
    await harness.begin(1, make_code(source=TYPO))

    ending = harness.ending(1)
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.ERROR)
    assert ending.reason == "jobs/prices.lua:3: syntax error"
    assert not any(worker.vms for worker in harness.pool.stats().workers)


async def test_jobs_spread_over_the_workers_and_stay_where_they_are(harness: PoolHarness) -> None:
    for run, job in enumerate([PRICES, NEWS, PRICES, NEWS], 1):
        await harness.do(run, make_code(job))

    assert harness.worker_of(1) is harness.worker_of(3)
    assert harness.worker_of(2) is harness.worker_of(4)
    assert harness.worker_of(1) is not harness.worker_of(2)


async def test_ops_are_answered_by_the_host_of_their_run_until_it_is_over(
    harness: PoolHarness, worker: FakeWorker
) -> None:
    worker.op(1, "echo", b"x", 2)
    await harness.clock.turn()
    assert worker.answers == [[Form.PLAIN, b"x", 2]]

    await harness.finish(1)
    worker.op(1, "echo", b"x")
    worker.end(1)
    harness.pool.cancel(RunId(1), Why.CANCELLED)
    await harness.clock.turn()
    assert len(worker.answers) == 1
    assert not any("cancel" in line for line in worker.story)


async def test_two_runs_of_one_number_at_once_are_refused(harness: PoolHarness, worker: FakeWorker) -> None:
    second = await harness.begin(1, make_code())

    assert isinstance(second.exception(), ValueError)


async def test_a_discarded_vm_is_replaced_at_the_next_run(harness: PoolHarness, worker: FakeWorker) -> None:
    ending = await harness.finish(1, Ended.CPU, discarded=True)
    assert (ending.failure, ending.globals_reset) == (Failure.CPU, True)

    await harness.do(2, make_code())

    assert harness.pool.stats().loads == 2
    assert sum(worker.vms for worker in harness.pool.stats().workers) == 1


@pytest.mark.parametrize(("times", "outcome"), [(2, Outcome.SUCCESS), (3, Outcome.LOST)])
async def test_a_run_whose_vm_was_gone_begins_in_another_some_times(
    harness: PoolHarness, worker: FakeWorker, times: int, outcome: Outcome
) -> None:
    for _ in range(times):
        assert not harness.tasks[1].done()
        harness.worker_of(1).end(1, Ended.UNBEGUN, discarded=True)
        await harness.clock.turn()

    assert harness.pool.stats().loads == 3
    harness.worker_of(1).end(1)
    await harness.clock.turn()
    assert harness.ending(1).outcome is outcome


# Cancelling
async def test_a_timeout_cancels_the_run(harness: PoolHarness, worker: FakeWorker) -> None:
    worker.op(1, "wait")
    await harness.clock.turn(59.9)
    assert worker.story[-1] == "begin 1"
    await harness.clock.turn(0.2)

    assert worker.story[-1] == "cancel 1 timeout"
    assert [waiting.cancelled() for waiting in harness.host.waiting] == [True]
    assert (await harness.finish(1, Ended.TIMEOUT)).failure is Failure.TIMEOUT


@pytest.mark.parametrize("twice", [False, True])
async def test_cancelling_the_task_cancels_the_run_and_waits_until_it_has_ended_unless_done_twice(
    harness: PoolHarness, worker: FakeWorker, twice: bool
) -> None:
    for _ in range(1 + twice):
        harness.tasks[1].cancel()
        await harness.clock.turn()
    assert worker.story[-1] == "cancel 1 cancelled"
    assert harness.tasks[1].cancelled() is twice

    worker.end(1, Ended.CANCELLED)
    await harness.clock.turn()
    assert harness.tasks[1].cancelled()
    assert (await harness.do(2, make_code())).outcome is Outcome.SUCCESS


# Generations
@pytest.mark.parametrize("is_loading", [False, True])
async def test_a_retired_vm_goes_with_its_last_run(harness: PoolHarness, is_loading: bool) -> None:
    await harness.begin(1, make_code(source=SLOW if is_loading else b""))
    (worker,) = [worker for worker in harness.spawner.workers if worker.story]

    harness.pool.retire(PRICES, older_than=2)
    if is_loading:
        worker.loaded(1)
    await harness.clock.turn()
    assert worker.story[-1] == "begin 1"

    await harness.finish(1)
    await harness.clock.turn()
    assert worker.story[-1] == "drop 1"


async def test_an_idle_vm_is_dropped_as_soon_as_it_is_retired_and_that_of_a_late_run_after_it(
    harness: PoolHarness,
) -> None:
    await harness.do(1, make_code(generation=1))
    await harness.do(2, make_code(NEWS))
    worker = harness.worker_of(1)

    harness.pool.retire(PRICES, older_than=2)
    await harness.clock.turn()
    assert worker.story[-1] == "drop 1"
    assert sum(info.vms for info in harness.pool.stats().workers) == 1

    await harness.do(3, make_code(generation=1))
    await harness.clock.turn()
    assert harness.worker_of(3).story[-1].startswith("drop ")
    assert sum(info.vms for info in harness.pool.stats().workers) == 1


async def test_a_retired_vm_that_is_held_serves_every_call_of_its_version_until_it_is_let_go(
    harness: PoolHarness,
) -> None:
    with harness.pool.holding(make_code()), harness.pool.holding(make_code()):
        await harness.do(1, make_code())
        harness.pool.retire(PRICES, older_than=2)
        await harness.do(2, make_code())
        await harness.do(3, make_code(generation=2))
        assert harness.pool.stats().loads == 2
        assert not any("drop 1" in worker.story for worker in harness.spawner.workers)

    await harness.clock.turn()
    assert [worker.story.count("drop 1") for worker in harness.spawner.workers if worker.story].count(1) == 1
    assert sum(info.vms for info in harness.pool.stats().workers) == 1


async def test_a_vm_that_was_held_and_is_still_wanted_stays(harness: PoolHarness) -> None:
    with harness.pool.holding(make_code()):
        await harness.do(1, make_code())
    await harness.do(2, make_code())

    assert harness.pool.stats().loads == 1


async def test_check_names_file_line_and_reason(harness: PoolHarness) -> None:
    checking = asyncio.create_task(harness.pool.check(make_code(source=TYPO)))
    await harness.clock.turn()

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


@pytest.mark.parametrize(
    ("source", "more", "story", "files"),
    [
        (b"return 1", (), ["load jobs/prices.lua as 1", "drop 1"], [[]]),
        (b"", (), [], []),
        (b"", (("jobs/defer.lua", b"return 2"),), ["load jobs/prices.lua as 1", "drop 1"], [["jobs/defer.lua"]]),
    ],
)
async def test_check_sends_every_file_unless_there_is_no_line_of_lua_and_leaves_no_vm_behind(
    harness: PoolHarness, source: bytes, more: wire.Files, story: list[str], files: list[list[str]]
) -> None:
    await harness.pool.check(replace(make_code(source=source), more=tuple(more)))
    await harness.clock.turn()

    assert [worker.story for worker in harness.spawner.workers] == [story, []]
    assert [worker.files for worker in harness.spawner.workers] == [files, []]


# Fresh VMs, and spare ones
async def test_ids_for_calls_that_are_not_recorded_never_meet_those_of_runs(harness: PoolHarness) -> None:
    first, second = harness.pool.new_id(), harness.pool.new_id()

    assert 1 << 52 < first < second < 1 << 53  # each a number that Lua can hold exactly


async def test_a_fresh_run_is_begun_in_a_vm_that_its_worker_makes_and_drops_by_itself(harness: PoolHarness) -> None:
    await harness.begin(1, make_code(), fresh=True)
    await harness.finish(1)
    await harness.begin(2, make_code(), fresh=True)
    await harness.finish(2)
    await harness.clock.turn()

    stories = [worker.story for worker in harness.spawner.workers]
    assert stories == [["template 1", "fresh 1", "fresh 2"], []]
    assert harness.ending(2).outcome is Outcome.SUCCESS
    assert [worker.vms for worker in harness.pool.stats().workers] == [0, 0]


async def test_fresh_runs_at_once_are_spread_over_the_workers_which_are_told_of_a_cancel(harness: PoolHarness) -> None:
    await harness.begin(1, make_code(), fresh=True)
    await harness.begin(2, make_code(), fresh=True)
    harness.pool.cancel(RunId(2), Why.CANCELLED)
    await harness.clock.turn()

    assert [worker.story for worker in harness.spawner.workers] == [
        ["template 1", "fresh 1"],
        ["template 1", "fresh 2", "cancel 2 cancelled"],
    ]


async def test_spares_are_kept_of_the_newest_code_alone(harness: PoolHarness) -> None:
    harness.pool.keep_spares(make_code(generation=1, isolation=Isolation.PROCESS), 2)
    harness.pool.keep_spares(make_code(generation=2, isolation=Isolation.PROCESS), 2)
    await harness.clock.turn(3)
    await harness.begin(1, make_code(generation=2, isolation=Isolation.PROCESS), fresh=True)

    assert harness.worker_of(1).story == ["template 1", "drop 1", "template 2", "fresh 1"]


async def test_a_worker_of_its_own_stays_as_long_as_there_are_spares_in_it(harness: PoolHarness) -> None:
    harness.pool.keep_spares(OWN, 1)
    await harness.clock.turn(3)
    await harness.begin(1, OWN, fresh=True)
    await harness.finish(1)
    own = harness.worker_of(1)
    assert own.story == ["template 1", "fresh 1"]
    harness.pool.retire(PRICES, 2)
    await harness.clock.turn()

    assert own.story[-1] == "killed"


async def test_the_template_of_a_fresh_run_stays_until_that_has_ended_though_a_newer_one_has_come(
    harness: PoolHarness,
) -> None:
    await harness.begin(1, OWN, fresh=True)
    await harness.begin(2, make_code(generation=2, isolation=Isolation.PROCESS), fresh=True)
    own = harness.worker_of(1)
    assert own.story == ["template 1", "fresh 1", "template 3", "fresh 2"]

    await harness.finish(1)
    assert own.story[4:] == ["drop 1"]


async def test_a_fresh_run_whose_worker_knew_no_template_is_begun_again(harness: PoolHarness) -> None:
    await harness.begin(1, make_code(), fresh=True)
    harness.worker_of(1).end(1, Ended.UNBEGUN, discarded=True)
    await harness.clock.turn()
    await harness.finish(1)

    assert harness.ending(1).outcome is Outcome.SUCCESS
    stories = [line.split()[0] for worker in harness.spawner.workers for line in worker.story]
    assert (stories.count("fresh"), harness.pool.stats().loads) == (2, 0)


async def test_after_the_death_of_its_worker_a_job_with_spares_is_served_by_another(harness: PoolHarness) -> None:
    harness.pool.keep_spares(OWN, 1)
    await harness.clock.turn(3)
    await harness.begin(1, OWN, fresh=True)
    first = harness.worker_of(1)
    await harness.kill(first, 1)
    await harness.begin(2, OWN, fresh=True)
    await harness.clock.turn(5)

    assert harness.ending(1).guilty
    assert harness.worker_of(2) is not first
    assert (await harness.finish(2)).outcome is Outcome.SUCCESS


# Loss
async def test_after_a_death_the_one_being_stepped_is_guilty_and_the_others_are_not(
    harness: PoolHarness, shared: FakeWorker
) -> None:
    await harness.kill(shared, 3)

    innocent, guilty = harness.ending(1), harness.ending(3)
    assert (innocent.outcome, innocent.guilty) == (Outcome.LOST, False)
    assert (guilty.outcome, guilty.guilty) == (Outcome.LOST, True)
    assert "it was ended by SIGKILL" in guilty.reason
    assert not harness.tasks[2].done()
    assert list(harness.pool.stats().quarantined) == [WEATHER]
    stats = harness.pool.stats()
    assert (stats.deaths, stats.kills) == (1, 0), "the daemon has killed nobody"


async def test_what_a_worker_said_before_it_died_counts(harness: PoolHarness, worker: FakeWorker) -> None:
    worker.end(1)
    worker.die()
    await harness.clock.turn()

    assert harness.ending(1).outcome is Outcome.SUCCESS


async def test_a_quarantined_job_runs_in_a_worker_of_its_own_until_a_clean_run(
    harness: PoolHarness, worker: FakeWorker
) -> None:
    await harness.kill(worker, 1)
    await harness.begin(2, make_code())
    own = harness.worker_of(2)
    assert [info.job for info in harness.pool.stats().workers].count(PRICES) == 1
    await harness.finish(2, Ended.ERROR)
    await harness.begin(3, make_code())
    assert harness.worker_of(3) is own

    ending = await harness.finish(3)
    assert ending.globals_reset  # it goes back to a shared worker, in a fresh VM
    await harness.clock.turn(1)
    assert own.child.exited.done()
    assert not harness.pool.stats().quarantined

    await harness.do(4, make_code())
    assert harness.worker_of(4) is not own
    assert [info.job for info in harness.pool.stats().workers] == [None, None]


async def test_a_new_generation_is_out_of_quarantine(harness: PoolHarness, worker: FakeWorker) -> None:
    await harness.kill(worker, 1)
    await harness.do(2, make_code(NEWS))

    await harness.begin(3, make_code(generation=2))

    assert [info.job for info in harness.pool.stats().workers] == [None, None]


async def test_nobody_is_guilty_when_the_zygote_dies(harness: PoolHarness, worker: FakeWorker) -> None:
    worker.step(1)

    worker.die("its zygote died", with_zygote=True)
    await harness.clock.turn()

    assert (harness.ending(1).outcome, harness.ending(1).guilty) == (Outcome.LOST, False)
    assert not harness.pool.stats().quarantined


async def test_a_worker_that_answers_no_ping_is_killed(harness: PoolHarness, worker: FakeWorker) -> None:
    worker.answers_pings = False
    worker.step(1)

    await harness.clock.turn(1.4)
    assert not harness.tasks[1].done()

    await harness.clock.turn(1.1)
    assert worker.story[-1] == "killed"
    ending = harness.ending(1)
    assert (ending.outcome, ending.guilty) == (Outcome.LOST, True)
    assert "no ping" in ending.reason


async def test_a_worker_too_busy_to_answer_pings_lives_on_while_it_talks(
    harness: PoolHarness, worker: FakeWorker
) -> None:
    worker.answers_pings = False

    for _ in range(10):
        await harness.clock.turn(1)
        worker.say(wire.ScriptLog(1, "info", b"still here"))
    await harness.clock.turn(0.1)

    assert harness.pool.stats().deaths == 0


async def test_a_pause_of_the_daemon_itself_kills_nobody(harness: PoolHarness) -> None:
    harness.clock.advance(30)  # nothing was read meanwhile
    await harness.clock.turn(2)

    assert harness.pool.stats().deaths == 0


@pytest.mark.parametrize("how", ["dies", "stuck"])
async def test_a_run_over_its_timeout_whose_worker_dies_or_says_that_it_is_stuck_failed_with_that(
    harness: PoolHarness, how: str, worker: FakeWorker
) -> None:
    await harness.clock.turn(60)

    if how == "dies":
        await harness.kill(worker, 1)
    else:
        worker.stuck(1)
        await harness.clock.turn()

    assert (harness.ending(1).outcome, harness.ending(1).failure) == (Outcome.FAILED, Failure.TIMEOUT)
    assert list(harness.pool.stats().quarantined) == [PRICES]


# A run that can't be stopped
async def test_a_stuck_run_fails_at_once_and_the_others_may_finish(harness: PoolHarness, shared: FakeWorker) -> None:
    shared.stuck(1)
    await harness.clock.turn(0.5)

    assert (harness.ending(1).outcome, harness.ending(1).failure) == (Outcome.FAILED, Failure.CPU)
    assert not shared.child.exited.done()
    assert not harness.tasks[3].done()

    assert (await harness.finish(3)).outcome is Outcome.SUCCESS
    await harness.clock.turn()
    assert shared.story[-1] == "killed"
    assert len(harness.spawner.living) == 2
    assert list(harness.pool.stats().quarantined) == [PRICES]


async def test_the_others_on_a_stuck_worker_are_lost_after_a_grace_and_innocent(
    harness: PoolHarness, shared: FakeWorker
) -> None:
    shared.step(1, 3)

    shared.stuck(1)
    await harness.clock.turn(1.1)

    assert shared.story[-1] == "killed"
    assert (harness.ending(3).outcome, harness.ending(3).guilty) == (Outcome.LOST, False)
    assert list(harness.pool.stats().quarantined) == [PRICES]


async def test_the_replacement_starts_before_the_kill(harness: PoolHarness, worker: FakeWorker) -> None:
    harness.spawner.is_mute = True  # it is forked, and not ready

    worker.stuck(1)
    await harness.clock.turn(5)
    assert "killed" not in worker.story

    harness.spawner.is_mute = False
    await harness.clock.turn(10)
    assert "killed" in worker.story


async def test_a_worker_that_cannot_even_say_that_it_is_stuck_is_replaced(
    harness: PoolHarness, worker: FakeWorker
) -> None:
    harness.pool.cancel(RunId(1), Why.CANCELLED)

    await harness.clock.turn(5)

    assert harness.ending(1).failure is Failure.CANCELLED
    assert worker.child.exited.done()


async def test_what_waits_for_its_vm_on_a_stuck_worker_begins_elsewhere(
    harness: PoolHarness, worker: FakeWorker
) -> None:
    await harness.begin(2, make_code(NEWS))
    await harness.begin(3, make_code(WEATHER, source=SLOW))
    assert worker.story[-1] == "load jobs/weather.lua as 2"

    worker.stuck(1)
    await harness.clock.turn()
    elsewhere = next(each for each in harness.spawner.living if "load jobs/weather.lua as 2" in each.story[1:])
    assert elsewhere is not worker
    elsewhere.loaded(2)
    await harness.clock.turn()

    assert (await harness.finish(3)).outcome is Outcome.SUCCESS


# Workers of their own
async def test_an_isolated_job_has_a_worker_of_its_own_that_goes_with_its_last_vm(harness: PoolHarness) -> None:
    await harness.do(1, OWN)
    await harness.do(2, OWN)
    await harness.do(3, make_code(NEWS))
    assert harness.worker_of(1) is harness.worker_of(2)
    assert harness.worker_of(3) is not harness.worker_of(1)
    assert [info.job for info in harness.pool.stats().workers] == [None, None, PRICES]

    harness.pool.retire(PRICES, older_than=2)
    await harness.clock.turn(1)
    assert harness.worker_of(1).child.exited.done()
    assert harness.pool.stats().deaths == 0
    assert len(harness.pool.stats().workers) == 2


async def test_a_job_that_becomes_isolated_moves_at_its_next_run(harness: PoolHarness) -> None:
    await harness.do(1, make_code())
    shared = harness.worker_of(1)

    await harness.do(2, OWN)

    assert harness.worker_of(2) is not shared
    assert shared.story[-1] == "drop 1"


@pytest.fixture
def room_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "allowed", lambda: 2 * SHARE * DESCRIPTORS_EACH)
    monkeypatch.setattr(descriptors, "left", lambda: 1_000)


ALONE = [make_code(JobId(f"alone{number}"), isolation=Isolation.PROCESS) for number in range(6)]


async def test_beyond_the_bound_of_own_workers_the_idle_one_used_longest_ago_makes_room(
    harness: PoolHarness, room_for_two: None
) -> None:
    for run, code in enumerate([ALONE[0], ALONE[1], ALONE[0]], start=1):
        await harness.do(run, code)
    first, second = harness.worker_of(1), harness.worker_of(2)
    await harness.begin(4, ALONE[2])
    await harness.clock.turn(1)
    assert "killed" in second.story
    assert "killed" not in first.story
    await harness.finish(4)
    assert harness.pool.stats().deaths == 0
    await harness.do(5, ALONE[0])
    assert first.story.count("load jobs/alone0.lua as 1") == 1  # it was never gone


async def test_a_run_without_room_waits_in_line_and_only_its_own_time_counts(
    harness: PoolHarness, room_for_two: None
) -> None:
    for run in (1, 2, 3, 4, 5):
        await harness.begin(run, ALONE[run])
    assert harness.pool.stats().waiting == 3
    await harness.do(6, make_code(NEWS))  # those of shared workers do not wait for it
    harness.tasks[3].cancel()
    harness.pool.cancel(RunId(4), Why.CANCELLED)
    await harness.clock.turn(50)  # of the 60 seconds that a run has
    assert harness.ending(4).failure is Failure.CANCELLED
    assert harness.pool.stats().waiting == 1
    await harness.finish(1)
    await harness.clock.turn(50)
    assert harness.pool.stats().waiting == 0
    await harness.finish(5)
    assert harness.ending(5).outcome is Outcome.SUCCESS


async def test_few_workers_start_at_once_however_many_are_wanted(harness: PoolHarness) -> None:
    before = harness.spawner.forks
    harness.spawner.is_mute = True
    for run, code in enumerate(ALONE, start=1):
        await harness.begin(run, code)
    assert harness.spawner.forks == before + STARTING


async def test_scarce_descriptors_hold_back_all_own_workers_but_one(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 38
    monkeypatch.setattr(descriptors, "left", lambda: left)
    await harness.begin(1, ALONE[1])
    await harness.begin(2, ALONE[2])
    assert harness.pool.stats().waiting == 1
    left = 1_000
    await harness.clock.turn(1)
    await harness.finish(2)


async def test_above_its_memory_budget_a_workers_largest_vm_moves_out() -> None:
    async with open_world(workers=1, memory_budget=100 * MIB) as harness:
        await harness.do(1, make_code(PRICES))
        await harness.do(2, make_code(NEWS))
        worker = harness.worker_of(1)
        worker.used, worker.largest = 130 * MIB, [(2, 90 * MIB), (1, 40 * MIB)]

        await harness.clock.turn(0.6)
        assert worker.story[-1] == "drop 2"
        await harness.clock.turn(2)  # it still counts until it is closed
        assert "drop 1" not in worker.story

        await harness.do(3, make_code(NEWS))
        assert harness.worker_of(3) is not worker
        await harness.do(4, make_code(NEWS))
        assert harness.worker_of(4) is harness.worker_of(3)
        await harness.do(5, make_code(PRICES))
        assert harness.worker_of(5) is worker
        assert "memory budget" in harness.pool.stats().quarantined[NEWS]


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


async def test_forks_that_fail_are_tried_again_ever_more_slowly_and_may_fail_for_hours(harness: PoolHarness) -> None:
    harness.spawner.trouble = "no processes left"
    await harness.kill(harness.spawner.workers[0])

    await harness.clock.turn(60)
    assert 10 < harness.spawner.forks < 30

    await harness.kill(harness.spawner.workers[1])
    await harness.clock.turn(3000)
    harness.spawner.trouble = ""
    await harness.clock.turn(6)
    assert harness.spawner.forks > 1024  # two to that power is no float any more
    assert len(harness.spawner.living) == 2


async def test_a_dead_worker_is_replaced_as_soon_as_there_are_descriptors_again(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Slots:
        raise OSError(errno.EMFILE, "Too many open files")

    await harness.begin(1, make_code())
    with monkeypatch.context() as out_of_descriptors:
        out_of_descriptors.setattr(worker_process, "Slots", refuse)
        await harness.kill(harness.worker_of(1), 1)
        await harness.clock.turn(2)
    assert harness.ending(1).outcome is Outcome.LOST
    assert harness.spawner.forks == 2

    await harness.clock.turn(5)

    assert harness.spawner.forks == 3
    assert all(worker.pid for worker in harness.pool.stats().workers)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_run_waits_for_a_worker_and_raises_the_reason_where_none_comes_in_time(comes_back: bool) -> None:
    async with open_world(workers=1) as harness:
        harness.spawner.trouble = "no processes left"
        await harness.kill(harness.spawner.workers[0])
        task = await harness.begin(1, make_code())
        if comes_back:
            harness.spawner.trouble = ""
            await harness.clock.turn(5)
            assert (await harness.finish(1)).outcome is Outcome.SUCCESS
            return

        await harness.clock.turn(PATIENCE + 1)

        error = task.exception()
        assert isinstance(error, PoolError)
        assert "no processes left" in str(error)


async def test_a_worker_that_never_gets_ready_is_given_up(harness: PoolHarness) -> None:
    harness.spawner.is_mute = True
    await harness.kill(harness.spawner.workers[0])
    harness.spawner.is_mute = False

    await harness.clock.turn(12)

    assert harness.spawner.workers[2].story == ["killed"]
    assert len(harness.spawner.living) == 2


async def test_a_script_whose_loading_kills_workers_is_stopped_in_a_worker_of_its_own() -> None:
    async with open_world(workers=1) as harness:
        await harness.clock.turn(1)
        await harness.begin(1, make_code(source=SLOW))
        await harness.kill(harness.spawner.workers[0])
        assert not harness.tasks[1].done()
        assert list(harness.pool.stats().quarantined) == [PRICES]

        for _ in range(2):
            own = next(worker for worker in harness.spawner.living if worker.story)
            await harness.kill(own)
            await harness.clock.turn(1)

        assert (harness.ending(1).outcome, harness.ending(1).guilty) == (Outcome.LOST, True)


# Logs and the end
async def test_log_lines_are_paid_back_at_a_bounded_rate(harness: PoolHarness, worker: FakeWorker) -> None:
    worker.log(1, 250)
    await harness.clock.turn(0.021)
    assert len(harness.host.lines) == 250
    assert worker.story[-1] == "credit 100"

    await harness.clock.turn(0.1)
    assert [line for line in worker.story if "credit" in line] == ["credit 100", "credit 100", "credit 50"]


async def test_long_log_lines_are_paid_back_at_a_bounded_rate_of_bytes(
    harness: PoolHarness, worker: FakeWorker
) -> None:
    def granted() -> int:
        return sum(int(line.split()[1]) for line in worker.story if "credit" in line)

    worker.log(1, 200, bytes(16_000))  # 3.2 MB: three seconds at 1 MB/s
    await harness.clock.turn(1.0)
    assert granted() * 16_000 == pytest.approx(LOG_BYTES_PER_S, rel=0.05)

    await harness.clock.turn(3.0)
    assert granted() == 200


async def test_a_planned_stop_ends_the_rest_as_stopped(harness: PoolHarness, worker: FakeWorker) -> None:
    await harness.begin(2, make_code(NEWS))
    await harness.begin(3, make_code(WEATHER, source=SLOW))
    stopping = asyncio.create_task(harness.pool.stop(5))
    await harness.clock.turn(5.1)
    assert worker.story[-1] == "cancel 1 stopped"
    worker.end(1, Ended.STOPPED)

    await harness.clock.turn(5)

    assert [harness.ending(run).outcome for run in (1, 2, 3)] == [Outcome.STOPPED] * 3
    assert stopping.done()
    assert not harness.spawner.living
    assert not harness.pool.stats().quarantined


async def test_a_planned_stop_lets_runs_end_within_the_grace_and_begins_no_other(harness: PoolHarness) -> None:
    await harness.begin(1, make_code())
    stopping = asyncio.create_task(harness.pool.stop(10))
    await harness.clock.turn(5)
    assert not any("cancel" in line for line in harness.worker_of(1).story)

    ending = await harness.finish(1)
    await harness.clock.turn(1)

    assert ending.outcome is Outcome.SUCCESS
    assert stopping.done()
    assert (await harness.begin(2, make_code())).result().outcome is Outcome.STOPPED


async def test_a_worker_that_dies_during_the_stop_stops_its_runs(harness: PoolHarness, worker: FakeWorker) -> None:
    stopping = asyncio.create_task(harness.pool.stop(10))
    await harness.clock.turn(1)

    await harness.kill(worker, 1)
    await harness.clock.turn(1)

    assert harness.ending(1).outcome is Outcome.STOPPED
    assert stopping.done()


async def test_an_error_of_the_caller_leaves_the_pool_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with open_world():
            raise KeyError


def test_a_case_ends_with_its_generation_and_not_by_a_clean_run_of_a_newer_one() -> None:
    quarantine = Quarantine()
    quarantine.put(make_code(), "it crashed", until_clean_run=True)
    assert not quarantine.release_after_clean_run(make_code(generation=2))
    quarantine.renew(PRICES, older_than=1)
    assert quarantine.holds(make_code())
    assert quarantine.reasons

    quarantine.renew(PRICES, older_than=2)
    assert not quarantine.reasons
