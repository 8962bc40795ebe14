"""A run of a monitor job: workers, the queue of addresses, what ends it early, and its last word."""

from __future__ import annotations

import asyncio
from asyncio import Future, get_running_loop

import pytest
from msgspec.structs import replace

from spyweb.cooperative import set_done
from spyweb.errors import FetchError, PoolError
from spyweb.lua.endings import ended_for
from spyweb.lua.session import Host, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, Outcome, Proxies, RunId
from spyweb.monitor.context import CycleFailed
from spyweb.monitor.run import conclude, ending_of
from tests.fakes.monitor import URL, Hook, HookError, Shop, make_monitor, shop


def addresses(count: int) -> tuple[str, ...]:
    return tuple(f"http://shop.example/{number}" for number in range(1, count + 1))


def same(argument: object, _ctx: object) -> object:
    return argument


def hold(s: Shop, *urls: str) -> dict[str, Future[None]]:
    """Let these addresses not answer."""
    s.http.held = {url: asyncio.get_running_loop().create_future() for url in urls}
    return s.http.held


async def test_workers_take_addresses_from_one_queue(s: Shop) -> None:
    held = hold(s, *addresses(4))
    task = s.start(make_monitor(urls=addresses(4), is_queue=True, workers=2))
    await s.clock.turn(1)
    assert s.story == [f"fetch {url}" for url in addresses(2)]
    held["http://shop.example/2"].set_result(None)
    await s.clock.turn()
    assert s.story[2:] == ["extract", "fetch http://shop.example/3"]
    for answer in held.values():
        set_done(answer)
    await s.clock.turn()
    assert (await task).outcome is Outcome.SUCCESS
    assert sorted(str(fetch.url) for fetch in s.http.asked) == list(addresses(4))


async def test_workers_begin_200_ms_apart(s: Shop) -> None:
    hold(s, URL)
    task = s.start(make_monitor(workers=3))
    seen = []
    for _ in range(5):
        await s.clock.turn(0.1)
        seen.append(len(s.http.asked))
    s.http.held[URL].set_result(None)
    assert seen == [1, 2, 2, 3, 3]
    await task


async def test_all_runs_together_fetch_from_a_host_at_most_so_often_at_a_time() -> None:
    async with shop(per_host=2) as s:
        hold(s, URL)
        tasks = [s.start(make_monitor(workers=2)) for _ in range(2)]
        await s.clock.turn(1)
        assert len(s.http.asked) == 2
        s.http.held[URL].set_result(None)
        assert [(await task).outcome for task in tasks] == [Outcome.SUCCESS] * 2
        assert len(s.http.asked) == 4


async def test_no_worker_begins_once_the_queue_is_empty(s: Shop) -> None:
    task = s.start(make_monitor(urls=addresses(2), is_queue=True, workers=50))
    await s.clock.turn(0.2)
    assert (await task).outcome is Outcome.SUCCESS
    assert len(s.http.asked) == 2


async def test_a_worker_that_fails_leaves_the_others_and_its_own_next_address(s: Shop) -> None:
    s.http.answers[addresses(1)[0]] = FetchError("dns", "no such host")
    ending = await s.run(make_monitor(urls=addresses(3), is_queue=True))
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.ERROR)
    assert ending.reason == "http://shop.example/1: no such host (1 of 3 cycles)"
    assert len(s.extractor.pages) == 2


async def test_other_workers_go_on_between_hooks(s: Shop) -> None:
    held = hold(s, "http://shop.example/1")
    s.vms.hooks = {"before_fetch": same}
    task = s.start(make_monitor(True, urls=addresses(2), is_queue=True, workers=2))
    await s.clock.turn(1)
    assert s.story[-3:] == ["before_fetch of 2", "fetch http://shop.example/2", "extract"]
    held["http://shop.example/1"].set_result(None)
    await task


@pytest.mark.parametrize(
    ("why", "outcome", "failure"),
    [(Why.CANCELLED, Outcome.FAILED, Failure.CANCELLED), (Why.STOPPED, Outcome.STOPPED, None)],
)
async def test_what_is_cancelled_ends_in_its_stage(
    s: Shop, why: Why, outcome: Outcome, failure: Failure | None
) -> None:
    hold(s, URL)
    task = s.start(make_monitor(urls=(URL, *addresses(2)), is_queue=True))
    await s.clock.turn()
    s.monitors.cancel(RunId(1), why)
    ending = await task
    assert (ending.outcome, ending.failure, len(s.http.asked)) == (outcome, failure, 1)
    assert ending.reason.endswith("in fetch")


async def test_a_run_over_its_timeout_ends_with_all_its_cycles(s: Shop) -> None:
    hold(s, URL)
    task = s.start(make_monitor(workers=2, spec={"timeout_ms": 3000}))
    await s.clock.turn(2.9)
    assert not task.done()
    await s.clock.turn(0.1)
    ending = await task
    assert (ending.failure, ending.reason) == (Failure.TIMEOUT, "over its timeout in fetch")


async def test_a_cycle_with_a_vm_is_ended_by_its_vm_and_on_finished_still_comes(s: Shop) -> None:
    hold(s, URL)
    s.vms.hooks = {"before_fetch": same, "on_error": same, "on_finished": same}
    task = s.start(make_monitor(True, spec={"timeout_ms": 3000}))
    await s.clock.turn(3)
    ending = await task
    assert (ending.failure, ending.reason) == (Failure.TIMEOUT, "killed: TIMEOUT")
    assert s.story == ["load", "before_fetch", f"fetch {URL}", "kill timeout", "on_finished"]


async def test_one_worker_killed_in_its_hook_leaves_the_others(s: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    run, lost = s.vms.run, Ending(outcome=Outcome.LOST, reason="its worker died", guilty=True)

    async def run_or_die(request: Request, host: Host) -> Ending:
        dies = request.arguments[0].get("worker_id") == 1  # type: ignore[attr-defined]
        return lost if dies else await run(request, host)

    monkeypatch.setattr(s.vms, "run", run_or_die)
    task = s.start(make_monitor(True, workers=2))
    await s.clock.turn(1)
    ending = await task
    assert (ending.outcome, ending.guilty, ending.reason) == (Outcome.LOST, True, "its worker died (1 of 2 cycles)")
    assert len(s.http.asked) == 1


async def test_without_a_worker_process_the_cycle_fails(s: Shop, monkeypatch: pytest.MonkeyPatch) -> None:

    async def refuse(_request: Request, _host: Host) -> Ending:
        raise PoolError("no worker could be had")

    monkeypatch.setattr(s.vms, "run", refuse)
    ending = await s.run(make_monitor(True))
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, "no worker could be had")


async def test_a_bug_in_one_cycle_is_contained(s: Shop) -> None:
    s.extractor.error = RuntimeError("oops")
    ending = await s.run(make_monitor(urls=addresses(2), is_queue=True))
    assert ending.reason == "http://shop.example/1: internal error (see the log) (2 of 2 cycles)"


async def test_a_bug_in_a_cycle_with_a_vm_lets_the_vm_go(s: Shop) -> None:
    s.extractor.error = RuntimeError("oops")
    ending = await s.run(make_monitor(True))
    assert ending.reason == "internal error (see the log)"


async def test_files_are_executed_once_for_all_cycles_of_a_vm(s: Shop) -> None:
    s.vms.hooks = dict[str, Hook]({"before_fetch": same})
    job = make_monitor(True, urls=addresses(3), is_queue=True)
    await s.run(job)
    await s.run(job)
    assert s.story.count("load") == 1


async def test_an_error_in_on_finished_is_logged(s: Shop) -> None:

    def fail(_none: object, _ctx: object) -> object:
        raise HookError("defer.lua:3: boom")

    s.vms.hooks = {"on_finished": fail}
    assert (await s.run(make_monitor(True))).outcome is Outcome.SUCCESS
    assert s.host.lines == ["error on_finished: defer.lua:3: boom\nstack traceback:"]


async def test_the_cycles_of_a_run_share_its_cpu_limit(s: Shop) -> None:
    s.vms.hooks, s.vms.cpu_ms = {"on_finished": same}, 40
    job = make_monitor(lua=True, urls=addresses(4), is_queue=True, spec={"cpu_limit_ms": 100})
    ending = await s.run(job)

    assert [request.cpu_limit_ms for request in s.vms.requests] == [100, 60, 20, 100]  # the last is on_finished's
    assert (ending.outcome, ending.failure, ending.cpu_ms) == (Outcome.FAILED, Failure.CPU, 120)
    assert ending.reason == "http://shop.example/4: over its CPU limit before it began (1 of 4 cycles)"


async def test_cycles_at_once_share_the_cpu_limit_too(s: Shop) -> None:
    s.vms.hooks, s.vms.cpu_ms = {"before_fetch": same}, 60
    held = hold(s, *addresses(3))
    job = make_monitor(True, urls=addresses(3), is_queue=True, workers=3, spec={"cpu_limit_ms": 100})
    task = s.start(job)
    await s.clock.turn(1)
    for url in addresses(2):
        held[url].set_result(None)
    await s.clock.turn()
    ending = await task
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.CPU)
    assert s.story[-1] == "kill cpu"  # the third, which would have used as much


GOOD = Ending(outcome=Outcome.SUCCESS, cpu_ms=2)
BAD = Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="no", traceback="where", cpu_ms=3)
KILLED = Ending(outcome=Outcome.FAILED, failure=Failure.CPU, reason="x.lua:1: over", cpu_ms=9, globals_reset=True)


def test_one_cycle_speaks_for_itself() -> None:
    assert conclude([BAD], Why.NOTHING) is BAD


def test_when_all_went_well_so_did_the_run() -> None:
    assert conclude([GOOD, GOOD], Why.NOTHING) == Ending(outcome=Outcome.SUCCESS, cpu_ms=4)


def test_the_first_that_went_wrong_stands_for_all() -> None:
    ending = conclude([GOOD, KILLED, BAD], Why.NOTHING)
    assert (ending.failure, ending.reason, ending.cpu_ms) == (Failure.CPU, "x.lua:1: over (2 of 3 cycles)", 14)
    assert ending.globals_reset


def test_a_run_that_was_told_to_end_ends_for_that() -> None:
    told = ended_for(Why.TIMEOUT, " in fetch")
    ending = conclude([GOOD, told], Why.TIMEOUT)
    assert (ending.outcome, ending.failure, ending.reason) == (
        Outcome.FAILED,
        Failure.TIMEOUT,
        "over its timeout in fetch",
    )
    assert conclude([GOOD], Why.STOPPED).outcome is Outcome.STOPPED
    assert conclude([], Why.CANCELLED).reason == "cancelled"


def test_a_failed_cycle_keeps_its_traceback() -> None:
    assert ending_of(CycleFailed("no", "where")) == Ending(
        outcome=Outcome.FAILED, failure=Failure.ERROR, reason="no", traceback="where"
    )
    assert ending_of(None).outcome is Outcome.SUCCESS


TWO = Proxies(urls=("http://a.example", "http://b.example"))


async def test_proxies_take_turns_over_runs_until_the_settings_change(s: Shop) -> None:
    job = make_monitor(proxies=TWO)
    await s.run(job)
    await s.run(job)
    job.spec = replace(job.spec, description="edited")
    await s.run(job)
    assert [str(fetch.proxy) for fetch in s.http.asked] == [TWO.urls[0], TWO.urls[1], TWO.urls[0]]


async def test_settings_that_change_in_a_run_count_from_the_next(s: Shop) -> None:
    s.http.held["http://shop.example/1"] = gate = get_running_loop().create_future()
    job = make_monitor(urls=("http://shop.example/1", "http://shop.example/2"), is_queue=True)
    task = s.start(job)
    await s.clock.turn()
    job.spec = make_monitor(urls=("http://shop.example/3",)).spec
    gate.set_result(None)
    await s.clock.turn()
    assert (await task).outcome is Outcome.SUCCESS
    await s.run(job)
    assert [str(fetch.url)[-1] for fetch in s.http.asked] == ["1", "2", "3"]


async def test_nothing_is_left_of_a_job_that_is_gone_once_its_runs_have_ended(s: Shop) -> None:
    idle, busy = make_monitor(), make_monitor()
    await s.run(idle)
    s.monitors.forget(idle.id)
    assert not s.monitors._versions
    assert not s.monitors._unannounced

    s.http.held["http://shop.example/"] = gate = get_running_loop().create_future()
    task = s.start(busy)
    await s.clock.turn()
    busy.gone = True
    s.monitors.forget(busy.id)
    assert s.monitors._unannounced  # a job that comes back must not announce what this run has in hand
    gate.set_result(None)
    await s.clock.turn()
    assert (await task).outcome is Outcome.SUCCESS
    assert not s.monitors._versions
    assert not s.monitors._unannounced


async def test_to_cancel_a_run_that_has_ended_does_nothing(s: Shop) -> None:
    await s.run()
    s.monitors.cancel(RunId(1), Why.CANCELLED)


async def test_a_job_that_became_a_script_is_told_so(s: Shop) -> None:
    job = make_monitor()
    job.spec = replace(job.spec, monitor=None)
    assert (await s.run(job)).reason == "shop is not a monitor job any more"
