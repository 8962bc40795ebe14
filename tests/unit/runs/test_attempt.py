"""What a worker is asked for one attempt at a run."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from spyweb.errors import NoAccess, PoolError, SpywebError, StoreError
from spyweb.lua import wire
from spyweb.lua.session import Host, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, JobId, Outcome, Retry, Run, RunId, RunState
from spyweb.runs.attempt import Surroundings, attempt, cancel
from spyweb.runs.live import LiveJobs
from spyweb.stalls import TOO_OFTEN, Work
from spyweb.store.protocol import ChangeEvent
from tests.fakes.clock import FakeClock
from tests.fakes.machine import SUCCESS, FakeMachine, FakeMonitors
from tests.fakes.memory.memory import MemoryStore
from tests.fakes.monitor import make_monitor
from tests.fakes.stalling import Hands
from tests.fakes.town import SilentHost, make_job, silent_host
from tests.fakes.triggered import make_event

CAUSED: dict[str, object] = {"type": "state", "scope": "orders", "key": "42", "event": 9, "when": ["f"]}


@dataclass(slots=True)
class World:
    clock: FakeClock
    machine: FakeMachine
    around: Surroundings

    async def attempt(self, trigger: dict[str, object], number: int = 1) -> Ending:
        job = make_job(retry=Retry(retries=1))
        run = Run(id=RunId(1), job=job.id, state=RunState.RUNNING, attempt=number, trigger=trigger)
        return await attempt(self.around, job, run, SilentHost(), {})


@pytest.fixture
def world() -> World:
    clock, machine = FakeClock(), FakeMachine()
    store = MemoryStore(clock)
    around = Surroundings(
        machine=machine,
        monitors=FakeMonitors(),
        runs=store.runs,
        events=store.events,
        live=LiveJobs(),
        clock=clock,
        host_for=silent_host,
        run_ended=lambda _run: None,
        random=lambda: 0.5,
    )
    return World(clock, machine, around)


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


async def test_a_script_is_told_its_context_and_whether_another_attempt_may_follow(world: World) -> None:
    await world.attempt({"type": "manual"})
    await world.attempt({"type": "retry", "of": 1}, number=2)

    first, second = world.machine.requests
    assert (first.procedure, len(first.arguments), first.arguments[1], second.arguments[1]) == ("run", 2, True, False)


async def test_for_a_change_it_is_told_the_event_and_the_conditions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.around.events, "find", answering(make_event()))
    await world.attempt(CAUSED)

    (request,) = world.machine.requests
    assert (request.procedure, request.arguments[3]) == ("trigger", ["f"])


@pytest.mark.parametrize("error", [StoreError("busy"), NoAccess("spyweb.db: no access as me")])
async def test_a_store_that_refuses_the_event_is_asked_again(
    error: SpywebError, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.around.events, "find", answering(error, make_event()))
    async with asyncio.TaskGroup() as tasks:
        attempt_of_it = tasks.create_task(world.attempt(CAUSED))
        await world.clock.turn(10)

    assert attempt_of_it.result() == SUCCESS


@pytest.mark.parametrize("is_asked_meanwhile", [False, True])
async def test_a_run_that_is_to_end_does_not_begin_even_if_that_comes_while_its_change_is_read(
    is_asked_meanwhile: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {} if is_asked_meanwhile else {RunId(1): Why.STOPPED}

    def find(_event: int) -> Future[ChangeEvent | None]:
        told[RunId(1)] = Why.STOPPED
        return answering(make_event())(9)

    monkeypatch.setattr(world.around.events, "find", find)
    run = Run(id=RunId(1), job=JobId("prices"), state=RunState.RUNNING, trigger=CAUSED)
    ending = await attempt(world.around, make_job(), run, SilentHost(), told)

    assert (ending.outcome, world.machine.story) == (Outcome.STOPPED, [])


async def test_a_change_that_is_gone_fails_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.around.events, "find", answering(None))
    ending = await world.attempt(CAUSED)

    assert (ending.outcome, ending.reason) == (Outcome.FAILED, "the change that started it is not stored any more")
    assert world.machine.requests == []


async def test_without_a_worker_the_run_has_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_request: Request, _host: Host) -> Ending:
        raise PoolError("no worker could be started")

    monkeypatch.setattr(world.machine, "run", refuse)

    assert (await world.attempt({"type": "manual"})).reason == "no worker could be started"


async def test_a_monitor_job_is_left_to_the_monitors(world: World) -> None:
    job = make_monitor()
    run = Run(id=RunId(1), job=job.id, state=RunState.RUNNING)
    monitors = FakeMonitors()
    ending = await attempt(replace(world.around, monitors=monitors), job, run, SilentHost(), {})
    assert (ending.outcome, monitors.story, world.machine.story) == (Outcome.SUCCESS, ["iterate shop"], [])


def test_a_run_is_cancelled_wherever_it_is(world: World) -> None:
    monitors = FakeMonitors()
    cancel(replace(world.around, monitors=monitors), RunId(7), Why.STOPPED)
    assert world.machine.story == monitors.story == ["cancel 7 stopped"]


async def test_a_monitor_job_is_told_the_change_that_started_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monitors = FakeMonitors()
    around = replace(world.around, monitors=monitors)
    for trigger in (CAUSED, {"type": "retry", "of": 1, "cause": CAUSED}):
        monkeypatch.setattr(around.events, "find", answering(make_event()))
        run = Run(id=RunId(1), job=make_monitor().id, state=RunState.RUNNING, trigger=trigger)
        await attempt(around, make_monitor(), run, SilentHost(), {})
    first, second = (wire.unpack(wire.pack([ctx["trigger"]]))[0] for ctx in monitors.contexts)
    assert first["type"] == "state"  # type: ignore[index]
    assert second == {"type": "retry", "of": 1, "event": first}


async def test_a_job_that_held_up_the_daemon_too_often_is_not_begun(world: World) -> None:
    hands = Hands()
    recorder = hands.recorder()
    for _ in range(TOO_OFTEN):
        started = hands.wall
        hands.compute(1.0)
        recorder.record(Work("op state.set", "prices", 1, 1), started)
    around = replace(world.around, stalls=recorder)
    ending = await World(world.clock, world.machine, around).attempt({"type": "schedule"})
    assert (ending.outcome, world.machine.story) == (Outcome.FAILED, [])
    assert ending.reason == recorder.refusal_of("prices", 1)
