from __future__ import annotations

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.lua.endings import failed
from spyweb.model import (
    NULL,
    After,
    Ending,
    JobId,
    Never,
    Outcome,
    PingAddresses,
    Retry,
    Run,
    RunId,
    RunState,
    Trigger,
    Value,
)
from spyweb.runs.records import (
    PingFacts,
    ctx_of,
    decode_ping,
    end_of,
    ended_run,
    event_to_lua,
    is_drifting,
    is_finding,
    ping_of,
    rid_of,
    run_of,
    skip_of,
    trigger_of,
    unbegun,
)
from spyweb.runs.runner import RunRequest, by_hand
from spyweb.store.model.messages import Channel, Target
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.clock import START_MS
from tests.fakes.daemon_service import make_run
from tests.fakes.harness import Harness, make_job, make_spec
from tests.fakes.pool import FAILED
from tests.fakes.triggered import make_event, make_wanted, read_on

NEW = NewRun(
    job=JobId("prices"), state=RunState.RUNNING, trigger=Trigger(type="schedule"), due_ms=61_500, started_ms=61_520
)


def test_ctx_gives_epoch_seconds_and_a_run_by_hand_was_scheduled_when_it_started() -> None:
    given = {"job": "prices", "run_id": 3, "attempt": 1}
    due = {"scheduled_at": 61.5, "started_at": 61.52, "trigger": {"type": "schedule"}}
    assert ctx_of(run_of(RunId(3), NEW)) == given | due
    by_hand = NewRun(job=JobId("prices"), state=RunState.RUNNING, trigger=Trigger(type="manual"), started_ms=1_000)
    assert ctx_of(run_of(RunId(3), by_hand))["scheduled_at"] == 1.0


def test_an_ended_run_reads_as_it_is_recorded() -> None:
    ending = replace(FAILED, storage_errors=2, result=[b"a", 1], http_status=404, items_found=3, items_new=1, note="!")
    before = run_of(RunId(3), NEW)
    run = ended_run(before, end_of(before, ending, 70_000))
    assert run == replace(
        before,
        state=RunState.ENDED,
        ended_ms=70_000,
        outcome=Outcome.FAILED,
        failure=FAILED.failure,
        reason=FAILED.reason,
        traceback=FAILED.traceback,
        cpu_ms=FAILED.cpu_ms,
        storage_errors=2,
        result='["a",1]',
        http_status=404,
        items_found=3,
        items_new=1,
        note="!",
    )


def test_what_is_skipped_names_its_due_time_or_the_moment() -> None:
    assert skip_of(NEW, 99, "busy").first_due_ms == 61_500
    by_hand = NewRun(job=JobId("prices"), state=RunState.WAITING, trigger=Trigger(type="after"))
    assert skip_of(by_hand, 99, "busy").last_due_ms == 99
    assert (skip_of(NEW, 99, "busy").trigger, skip_of(by_hand, 99, "busy").trigger) == ("schedule", "after")
    assert unbegun("gone").outcome is Outcome.SKIPPED


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
    assert (await t.record(), t.pool.story) == (["prices drift success"], [])
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


STATE = trigger_of(make_wanted(depth=2), read_on({"when": "f"}))
RETRY = Trigger(type="retry", of=RunId(1), depth=3, cause=STATE)


@pytest.mark.parametrize("trigger", [STATE, RETRY])
def test_a_retry_has_the_cause_of_what_it_retries(trigger: Trigger) -> None:
    assert trigger.change is not None
    assert (trigger.change_event, trigger.depth, trigger.change.when, trigger.change.by) == (9, 3, ["f"], 7)
    assert trigger.is_owed
    assert trigger.subject == ("orders", "42")


@pytest.mark.parametrize("type_", ["retry", "schedule", "", "state"])
def test_other_runs_have_none(type_: str) -> None:
    trigger = Trigger(type=type_)
    assert (trigger.change, trigger.change_event, trigger.is_owed) == (None, None, False)
    assert trigger.subject is None


def test_the_record_is_plain_json_for_any_key() -> None:
    trigger = trigger_of(make_wanted(b"\xff\0"), read_on({}))

    assert trigger.key == {"$base64": "/wA="}
    assert msgspec.json.decode(msgspec.json.encode(trigger), type=Trigger) == trigger
    assert b"when" not in msgspec.json.encode(trigger)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (None, b"v", {"new_value": b"v"}),
        (False, NULL, {"old_value": False}),
        ([], {1: True}, {"old_value": [], "new_value": {1: True}}),
    ],
)
def test_what_is_not_there_is_nil_to_the_script_and_so_is_null(old: Value, new: Value, told: dict[str, object]) -> None:
    event = msgspec.msgpack.decode(event_to_lua(make_event(b"\xff", old=old, new=new)), strict=False)

    what = {"type": "state", "event_type": "state:created", "scope": "orders", "key": b"\xff"}
    assert event == {**what, **told}


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
    message = ping_of(make_spec(ping=PINGED), RUN, ended(outcome))
    assert (message and decode_ping(message.payload).kind) == kind
    if message and kind:
        assert (message.target, message.headers) == (TARGET, (("kind", kind),))
        assert decode_ping(message.payload) == PingFacts(
            kind=kind, rid=rid_of(RUN), run=RUN.id, started_ms=5, ended_ms=9, reason="no space"
        )


def test_what_has_no_address_is_not_told() -> None:
    only_failures = make_spec(ping=PingAddresses(fail="https://hc/x"))
    assert ping_of(only_failures, RUN) is None
    assert ping_of(only_failures, RUN, ended(Outcome.SUCCESS)) is None
    assert ping_of(only_failures, RUN, ended(Outcome.LOST)) is not None
    assert ping_of(make_spec(), RUN, ended(Outcome.SUCCESS)) is None


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FAILED])
@pytest.mark.parametrize(
    "trigger", [Trigger(type="manual", dry_run=True), Trigger(type="alert", hook="on_down", incident={"id": 1})]
)
def test_a_run_that_is_not_the_job_s_own_work_is_not_told(trigger: Trigger, outcome: Outcome) -> None:
    aside = replace(RUN, trigger=trigger)
    assert ping_of(make_spec(ping=PINGED), aside) is None
    assert ping_of(make_spec(ping=PINGED), aside, ended(outcome)) is None


def test_attempts_of_one_run_have_one_id_and_runs_have_their_own() -> None:
    again = replace(RUN, id=RunId(8), attempt=2, trigger=Trigger(type="retry", of=RunId(7)))
    assert rid_of(again) == rid_of(RUN) != rid_of(replace(RUN, id=RunId(8)))
    assert ping_of(make_spec(ping=PINGED), again) is None


async def test_the_last_attempt_decides(t: Harness) -> None:
    job = make_job(ping=PINGED, retry=Retry(retries=1, delay_ms=1_000, jitter=False))
    t.pool.endings = {job.id: [failed("no space"), Ending(outcome=Outcome.SUCCESS)]}
    await t.settle(job)
    await t.clock.turn(5)
    assert await told(t) == ["start", "success"]


async def test_a_run_that_its_daemon_did_not_end_has_failed(t: Harness) -> None:
    t.live.add(job := make_job(ping=PINGED, enabled=True))
    new = NewRun(job=job.id, state=RunState.RUNNING, trigger=Trigger(), started_ms=START_MS)
    await t.store.runs.record(Change(new=[new]))
    taking = t.tasks.create_task(t.runner.take_up(await t.store.runs.open()))
    await t.clock.turn()
    await taking
    assert await told(t) == ["fail the daemon died"]


async def test_a_run_by_hand_is_told_too_and_of_each_kind_only_the_newest_waits(t: Harness) -> None:
    await t.settle(job := make_job(ping=PINGED))
    await t.clock.turn()
    for _ in range(3):
        t.runner.start_by_hand(job, by_hand())
        await t.clock.turn()
    assert await told(t) == ["start", "success"]
