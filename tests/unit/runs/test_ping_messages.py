"""What a watcher elsewhere is told of runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.lua.endings import failed
from spyweb.model import Ending, Outcome, PingAddresses, Retry, Run, RunId, RunState, Trigger
from spyweb.runs.ping_messages import PingFacts, decode_ping, end_ping, rid_of, start_ping
from spyweb.runs.runner import by_hand
from spyweb.store.model.messages import Channel, Target
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.harness import Harness, harness, make_job, make_spec
from tests.fakes.memory_store import MemoryStore

PINGED = PingAddresses(base="https://hc/x")
RUN = Run(id=RunId(7), job=make_spec().id, state=RunState.RUNNING, started_ms=5)
TARGET = Target(Channel.PING, "prices")


def ended(outcome: Outcome) -> End:
    return End(run=RUN.id, ended_ms=9, outcome=outcome, reason="no space")


async def told(t: Harness) -> list[str]:
    waiting = await t.store.outbox.unsent(None, 100)
    facts = [decode_ping(message.payload) for message in reversed(waiting) if message.target == TARGET]
    return [f"{each.kind} {each.reason}".strip() for each in facts]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.SUCCESS, "success"), (Outcome.FAILED, "fail"), (Outcome.LOST, "fail"),
        (Outcome.STOPPED, None), (Outcome.SKIPPED, None),
    ],
)  # fmt: skip
def test_successes_and_failures_are_told_and_nothing_else(outcome: Outcome, kind: str | None) -> None:
    message = end_ping(make_spec(ping=PINGED), RUN, ended(outcome))
    assert (message and decode_ping(message.payload).kind) == kind
    if message and kind:
        assert (message.target, message.headers) == (TARGET, (("kind", kind),))
        assert decode_ping(message.payload) == PingFacts(
            kind=kind, rid=rid_of(RUN), run=RUN.id, started_ms=5, ended_ms=9, reason="no space"
        )


def test_what_has_no_address_is_not_told() -> None:
    only_failures = make_spec(ping=PingAddresses(fail="https://hc/x"))
    assert start_ping(only_failures, RUN) is None
    assert end_ping(only_failures, RUN, ended(Outcome.SUCCESS)) is None
    assert end_ping(only_failures, RUN, ended(Outcome.LOST)) is not None
    assert end_ping(make_spec(), RUN, ended(Outcome.SUCCESS)) is None


def test_a_dry_run_is_not_told() -> None:
    dry = replace(RUN, trigger=Trigger(type="manual", dry_run=True))
    assert start_ping(make_spec(ping=PINGED), dry) is None
    assert end_ping(make_spec(ping=PINGED), dry, ended(Outcome.SUCCESS)) is None


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FAILED])
def test_a_run_that_tells_of_an_incident_is_not_told(outcome: Outcome) -> None:
    telling = replace(RUN, trigger=Trigger(type="alert", hook="on_down", incident={"id": 1}))
    assert start_ping(make_spec(ping=PINGED), telling) is None
    assert end_ping(make_spec(ping=PINGED), telling, ended(outcome)) is None


def test_attempts_of_one_run_have_one_id_and_runs_have_their_own() -> None:
    again = replace(RUN, id=RunId(8), attempt=2, trigger=Trigger(type="retry", of=RunId(7)))
    assert rid_of(again) == rid_of(RUN) != rid_of(replace(RUN, id=RunId(8)))
    assert start_ping(make_spec(ping=PINGED), again) is None


async def test_the_last_attempt_decides(t: Harness) -> None:
    job = make_job(ping=PINGED, retry=Retry(retries=1, delay_ms=1_000, jitter=False))
    t.pool.endings = {job.id: [failed("no space"), Ending(outcome=Outcome.SUCCESS)]}
    await t.settle(job)
    await t.clock.turn(5)
    assert await told(t) == ["start", "success"]


async def test_a_run_that_its_daemon_did_not_end_has_failed() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    async with harness(store, clock) as t:
        job = make_job(ping=PINGED, enabled=True)
        t.live.add(job)
        left = Run(id=RunId(1), job=job.id, state=RunState.RUNNING, started_ms=START_MS)
        await store.runs.record(
            Change(new=[NewRun(job=job.id, state=RunState.RUNNING, trigger=Trigger(), started_ms=1)])
        )
        taking = t.tasks.create_task(t.runner.take_up([left]))
        await clock.turn()
        await taking
        assert await told(t) == ["fail the daemon died"]


async def test_a_run_by_hand_is_told_too_and_of_each_kind_only_the_newest_waits(t: Harness) -> None:
    await t.settle(job := make_job(ping=PINGED))
    await t.clock.turn()
    for _ in range(3):
        t.runner.start_by_hand(job, by_hand())
        await t.clock.turn()
    assert await told(t) == ["start", "success"]
