"""What a worker is asked for one attempt at a run."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable

import pytest
from msgspec import convert

from spyweb.errors import NoAccess, PoolError, SpywebError, StoreError
from spyweb.lua import wire
from spyweb.lua.session import Host, Request
from spyweb.model import Ending, Never, Overlap, Retry, Run, Trigger
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import STORE_PATIENCE, RunRequest
from spyweb.stalls import TOO_OFTEN, Work
from spyweb.store.model.entries import ChangeEvent
from tests.fakes.clock import settle
from tests.fakes.hanging import HangingRecord
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.monitor import make_monitor
from tests.fakes.pool import FAILED
from tests.fakes.stalling import StallClocks
from tests.fakes.triggered import make_event

CAUSED: dict[str, object] = {"type": "state", "scope": "orders", "key": "42", "event": 9, "when": ["f"]}


def make_script(**settings: object) -> LiveJob:
    return make_job("prices", **{"schedule": Never(), "retry": Retry(retries=1, jitter=False), **settings})


async def start(t: Harness, job: LiveJob, trigger: dict[str, object]) -> None:
    if t.live.find(job.id) is None:
        await t.settle(job)
    t.runner.start(job, [RunRequest(trigger=convert(trigger, Trigger))])
    await t.clock.turn()


async def last(t: Harness) -> Run:
    return (await t.store.runs.list(limit=1))[0]


def answering(*answers: ChangeEvent | SpywebError | None) -> Callable[[int], Future[ChangeEvent | None]]:
    left = list(answers)

    def find(_event: int) -> Future[ChangeEvent | None]:
        future: Future[ChangeEvent | None] = Future()
        answer = left.pop(0)
        if isinstance(answer, SpywebError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    return find


async def test_a_script_is_told_its_context_and_whether_another_attempt_may_follow(t: Harness) -> None:
    job = make_script()
    t.pool.endings[job.id] = [FAILED]
    await start(t, job, {"type": "manual"})
    await t.clock.turn(60)
    first, second = t.pool.requests
    assert (first.procedure, len(first.arguments), first.arguments[1]) == ("run", 2, True)
    assert second.arguments[1] is False


async def test_for_a_change_it_is_told_the_event_and_the_conditions(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(t.store.events, "find", answering(make_event()))
    await start(t, make_script(), CAUSED)
    (request,) = t.pool.requests
    assert (request.procedure, request.arguments[3]) == ("trigger", ["f"])


@pytest.mark.parametrize("error", [StoreError("busy"), NoAccess("spyweb.db: no access as me")])
async def test_a_store_that_refuses_the_event_is_asked_again(
    t: Harness, error: SpywebError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(t.store.events, "find", answering(error, make_event()))
    await start(t, make_script(), CAUSED)
    assert t.pool.requests == []
    await t.clock.turn(STORE_PATIENCE)
    assert await t.record() == ["prices state success"]


async def test_a_run_that_is_to_end_while_its_change_is_read_does_not_begin(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Future[ChangeEvent | None] = Future()
    monkeypatch.setattr(t.store.events, "find", lambda _event: found)
    await start(t, make_script(), CAUSED)
    draining = t.tasks.create_task(t.runner.drain(0))
    await t.clock.turn()
    found.set_result(make_event())
    await t.clock.turn()
    await draining
    stopped = (await t.store.runs.list())[-1]
    assert (stopped.outcome, stopped.reason) == ("stopped", "the daemon stopped before it began")
    assert t.pool.requests == []


async def test_a_run_that_is_to_end_while_its_beginning_is_recorded_asks_for_no_change(
    t: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(t.store.events, "find", asked.append)
    job = make_script(overlap=Overlap.QUEUE)
    t.pool.held.add(job.id)
    await start(t, job, {"type": "manual"})
    await start(t, job, CAUSED)
    with monkeypatch.context() as patch:
        patch.setattr(t.store.runs, "record", hanging := HangingRecord(t.store.runs.record))
        t.pool.finish(1)
        await settle()
        (end, answer) = hanging.asked.pop()
        answer.set_result(await hanging.record(end))
        await settle()
        assert [len(change.begin) for change, _ in hanging.asked] == [1]
        draining = t.tasks.create_task(t.runner.drain(0))
        await t.clock.turn()
        await hanging.grant()
    await t.clock.turn()
    await draining
    stopped = next(run for run in await t.store.runs.list() if run.id == 2)
    assert (stopped.outcome, len(t.pool.requests), asked) == ("stopped", 1, [])


async def test_a_change_that_is_gone_fails_the_run(t: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t.store.events, "find", answering(None))
    await start(t, make_script(retry=Retry()), CAUSED)
    run = await last(t)
    assert (run.outcome, run.reason) == ("failed", "the change that started it is not stored any more")
    assert t.pool.requests == []


async def test_without_a_worker_the_run_has_failed(t: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_request: Request, _host: Host, **_how: bool) -> Ending:
        raise PoolError("no worker could be started")

    monkeypatch.setattr(t.pool, "run", refuse)
    await start(t, make_script(retry=Retry()), {"type": "manual"})
    assert (await last(t)).reason == "no worker could be started"


async def test_a_monitor_job_is_left_to_the_monitors(t: Harness) -> None:
    await start(t, make_monitor(spec={"schedule": Never()}), {"type": "manual"})
    assert (t.monitors.story, t.pool.story) == (["run shop"], [])
    assert await t.record() == ["shop manual success"]


async def test_a_run_is_cancelled_wherever_it_is(t: Harness) -> None:
    job = make_script(overlap=Overlap.REPLACE)
    t.pool.held.add(job.id)
    await start(t, job, {"type": "manual"})
    await start(t, job, {"type": "manual"})
    assert t.monitors.story == ["cancel 1 cancelled"]
    assert t.pool.story[1] == "cancel 1 cancelled"


async def test_a_monitor_job_is_told_the_change_that_started_it(t: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t.store.events, "find", answering(make_event(), make_event()))
    job = make_monitor(spec={"schedule": Never()})
    await start(t, job, CAUSED)
    await start(t, job, {"type": "retry", "of": 1, "cause": CAUSED})
    first, second = (wire.unpack(wire.pack([ctx["trigger"]]))[0] for ctx in t.monitors.contexts)
    assert first["type"] == "state"  # type: ignore[index]
    assert second == {"type": "retry", "of": 1, "event": first}


async def test_a_job_that_held_up_the_daemon_too_often_is_not_begun() -> None:
    clocks = StallClocks()
    recorder = clocks.recorder()
    for _ in range(TOO_OFTEN):
        started = clocks.wall
        clocks.compute(1.0)
        recorder.record(Work("op state.set", "prices", 1, 1), started)
    async with harness(stalls=recorder) as t:
        await start(t, make_script(retry=Retry()), {"type": "manual"})
        run = await last(t)
        assert (run.outcome, t.pool.story) == ("failed", [])
        assert run.reason == recorder.refusal_of("prices", 1)
