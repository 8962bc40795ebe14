"""Runs that drift starts: what they come to, what follows them, and what a crash makes of them."""

from __future__ import annotations

import pytest
from msgspec import structs

from spyweb.model import After, JobId, Never, Outcome, Retry, RunState, Trigger
from spyweb.runs.drift import is_drifting, is_finding
from spyweb.runs.runner import RunRequest
from spyweb.store.model.runs import Change, NewRun
from tests.fakes.daemon_service import make_run
from tests.fakes.harness import Harness, make_job

PRICES = JobId("prices")
FOUND = RunRequest(trigger=Trigger(type="drift", finding="1 resource differs"))
OVER = RunRequest(trigger=Trigger(type="drift", finding=""))
REPAIR = RunRequest(trigger=Trigger(type="drift", repairs="1 resource differs"))


async def start(t: Harness, request: RunRequest, **settings: object) -> None:
    job = make_job("prices", **{"schedule": Never(), **settings})
    after = make_job("alarm", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset(Outcome)),))
    await t.settle(job, after)
    t.runner.start(job, [request])
    await t.clock.turn(60)


async def test_a_finding_fails_without_running_the_script_and_is_not_retried(t: Harness) -> None:
    await start(t, FOUND, retry=Retry(retries=3, jitter=False))
    assert await t.record() == ["prices drift failed", "alarm after success"]
    assert t.pool.story == ["run alarm"]
    found = (await t.store.runs.list(PRICES))[0]
    assert found.reason == "1 resource differs"
    live = t.live.find(PRICES)
    assert live is not None
    assert is_drifting(live.last)


async def test_that_nothing_differs_any_more_is_a_success_that_nothing_follows(t: Harness) -> None:
    await start(t, OVER)
    assert await t.record() == ["prices drift success"]
    assert t.pool.story == []
    assert (await t.store.runs.list(PRICES))[0].note == "nothing differs any more"


async def test_a_repair_is_a_run_like_any_other_and_is_told_what_differs(t: Harness) -> None:
    await start(t, REPAIR)
    assert t.pool.story == ["run prices", "run alarm"]
    ctx = t.pool.requests[0].arguments[0]
    assert isinstance(ctx, dict)
    assert ctx["trigger"] == {"type": "drift", "repairs": "1 resource differs"}


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_finding_that_a_crash_cut_off_is_what_it_was_at_the_next_start(t: Harness, is_live: bool) -> None:
    new = NewRun(job=PRICES, state=RunState.RUNNING, trigger=FOUND.trigger, started_ms=1)
    await t.store.runs.record(Change(new=[new]))
    if is_live:
        await t.settle(make_job(schedule=Never(), retry=Retry(retries=3), resume=True))
    await t.runner.take_up(await t.store.runs.open())
    await t.clock.turn(60)
    assert await t.record() == ["prices drift failed"]
    assert t.pool.story == []


def test_which_run_is_which() -> None:
    found, repair = (make_run(trigger=request.trigger) for request in (FOUND, REPAIR))
    assert (is_finding(found), is_finding(repair), is_finding(make_run())) == (True, False, False)
    assert not is_drifting(None)
    assert not is_drifting(found), "it succeeded"
    assert is_drifting(structs.replace(found, outcome=Outcome.FAILED))
