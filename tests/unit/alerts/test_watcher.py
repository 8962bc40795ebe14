"""What the ends of runs mean for incidents, and who is told of them when."""

from __future__ import annotations

import dataclasses
import json
from asyncio import Future
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import convert
from msgspec.structs import replace
from structlog.testing import capture_logs

from spyweb.alerts import watcher
from spyweb.alerts.delivery import Attempt
from spyweb.alerts.watcher import event_of
from spyweb.cooperative import run_at_once
from spyweb.errors import StoreError
from spyweb.incidents.policy import AlertPolicy, Flapping, Level, QuietHours
from spyweb.incidents.truth import Failed, SignGone, SignSeen, Succeeded
from spyweb.lua.endings import failed
from spyweb.model import (
    Ending,
    Every,
    Failure,
    JobId,
    Misfire,
    MisfirePolicy,
    Never,
    Outcome,
    Retry,
    Run,
    RunId,
    RunState,
    Trigger,
)
from spyweb.outbox.send import DeliveryFailure
from spyweb.outbox.sender import slot_of_target
from spyweb.ownership import CHIEF
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import RunRequest
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once
from spyweb.store.model.incidents import SubjectChange, SubjectEvent
from spyweb.store.model.messages import Channel, Target
from spyweb.store.model.runs import End
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.signs import BACKUP, SUCCESS, WatchedJob, make_watcher

DIFFERS = Trigger(type="drift", finding="motd differs")
SHORT = Ending(outcome=Outcome.SUCCESS, note="not as expected: no items in 3 runs in a row")
TELL_OPS = AlertPolicy(to=("ops",), after_failures=2, remind_ms=None)
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/secret")
NOT_TAKEN = Attempt(DeliveryFailure(reason="answered 500"))
RETRY = Retry(retries=1, delay_ms=1000, jitter=False)


@dataclass
class Watched(WatchedJob):
    settings: AlertSettings = field(default_factory=lambda: AlertSettings(channels={"ops": OPS}))
    maintenance: MaintenanceCalendar = field(default_factory=MaintenanceCalendar)

    disk_is_full: bool = False

    async def pause(self, why: Mapping[JobId, str], jobs: Sequence[LiveJob]) -> None:
        if self.disk_is_full:
            raise StoreError("disk full")
        await self.harness.scheduler.pause_together(why, jobs)

    def begin_maintenance(self, minutes: int, *jobs: str) -> None:
        now_ms = self.harness.clock.now_ms()
        window = Once(now_ms, now_ms + minutes * 60_000)
        self.maintenance = MaintenanceCalendar([MaintenanceRule(window, jobs)])
        self.harness.live.link()

    async def fail(self, times: int = 1, *, then: float = 0) -> None:
        for _ in range(times):
            await self.run(failed("x"))
        await self.turn(then)

    def miss(self, added_ms: int | None, times: int = 3) -> None:
        """Let so many attempts to send to `ops` fail."""
        for _ in range(times):
            self.watcher.attempted("ops", NOT_TAKEN, added_ms)

    async def told(self) -> list[tuple[str, list[str]]]:
        """Return the messages in the outbox, oldest first: to whom, and what."""
        found = await self.harness.store.outbox.unsent(None, 100)
        return [
            (each.target.address, [item["kind"] for item in json.loads(each.payload)["items"]])
            for each in reversed(found)
        ]

    async def open(self) -> int:
        return len(await self.incidents())


@asynccontextmanager
async def watched(
    policy: AlertPolicy = TELL_OPS, before: Harness | None = None, **spec: object
) -> AsyncIterator[Watched]:
    """Watch one job that is started by hand alone; `before` is an earlier daemon with the same store."""
    async with harness(before.store if before else None, before.clock if before else None) as h:
        watched: Watched
        watcher = make_watcher(
            h,
            lambda: watched.settings,
            pause=lambda why, jobs: watched.pause(why, jobs),
            maintenance=lambda: watched.maintenance,
        )
        watched = Watched(h, watcher)
        await watcher.load()
        await h.settle(make_job("backup", **{"alerts": policy, "schedule": Never(), **spec}))
        planning = h.tasks.create_task(watcher.keep_up())
        await h.clock.turn(2)
        yield watched
        planning.cancel()


@pytest.fixture
async def w() -> AsyncIterator[Watched]:
    async with watched() as opened:
        yield opened


@pytest.fixture
async def at_once() -> AsyncIterator[Watched]:
    """One failure is an incident."""
    async with watched(replace(TELL_OPS, after_failures=1)) as opened:
        yield opened


@pytest.fixture
async def pausing() -> AsyncIterator[Watched]:
    async with watched(PAUSES) as opened:
        yield opened


async def test_an_incident_opens_with_the_nth_failure_is_told_once_and_its_end_is_told(w: Watched) -> None:
    await w.run(failed("no space"))
    assert (await w.open(), await w.told()) == (0, [])
    await w.run(failed("no space"))
    assert await w.open() == 1
    await w.run(failed("no space"), then=7)
    assert await w.told() == [("ops", ["opened"])]
    await w.run(then=7)
    assert (await w.open(), await w.told()) == (0, [("ops", ["opened"]), ("ops", ["closed"])])


async def test_a_success_is_nothing_to_incidents_but_after_a_failure_also_where_that_is_not_committed_yet(
    w: Watched,
) -> None:
    assert w.watcher.judge(w.job, run_of({"type": "manual"}), end_of()) is None
    assert w.watcher.judge(w.job, run_of({"type": "manual"}), end_of(Outcome.FAILED)) is not None
    assert w.watcher.judge(w.job, run_of({"type": "manual"}), end_of()) is not None


async def test_of_a_run_that_is_tried_again_the_last_attempt_counts() -> None:
    async with watched(replace(TELL_OPS, after_failures=1), retry=RETRY) as w:
        await w.run(failed("x"), failed("x"))
        assert await w.open() == 0
        await w.turn(2)
        assert await w.open() == 1


async def test_a_run_that_succeeds_as_it_is_tried_again_begins_the_row_anew() -> None:
    async with watched(retry=RETRY) as w:
        for _ in range(2):
            await w.run(failed("x"), SUCCESS, then=2)
        assert (await w.open(), len(await w.harness.record())) == (0, 4)
        assert await w.harness.store.incidents.known() == {}


async def test_due_times_of_a_paused_job_neither_count_nor_begin_the_row_anew(w: Watched) -> None:
    job = make_job("prices", alerts=TELL_OPS)
    w.harness.pool.endings[job.id] = [failed("x"), failed("x")]
    await w.harness.settle(job)
    await w.turn(60)
    await w.harness.scheduler.pause(job)
    await w.turn(180)
    await w.harness.scheduler.resume(job)
    assert await w.harness.record() == ["prices schedule failed", "prices schedule paused x3"]
    assert await w.open() == 0
    await w.turn(60)
    assert await w.open() == 1


async def test_due_times_that_a_daemon_missed_neither_count_nor_begin_the_row_anew() -> None:
    every_minute, no_misfires = Every(period_ms=60_000), Misfire(policy=MisfirePolicy.SKIP)
    async with watched(schedule=every_minute, misfire=no_misfires) as w:
        w.harness.pool.endings[BACKUP] = [failed("x")]
        await w.turn(60)
    w.harness.clock.advance(570)
    async with watched(before=w.harness, schedule=every_minute, misfire=no_misfires) as later:
        later.harness.pool.endings[BACKUP] = [failed("x")]
        assert (await later.harness.record())[1:] == ["backup schedule failed", "backup schedule missed x9"]
        assert await later.open() == 0
        await later.turn(60)
        assert await later.open() == 1


async def test_what_was_decided_and_not_told_is_told_by_the_next_daemon() -> None:
    async with watched(replace(TELL_OPS, after_failures=1)) as w:
        await w.fail()
        assert (await w.open(), await w.told()) == (1, [])
    async with watched(before=w.harness) as later:
        await later.turn(6)
        assert await later.told() == [("ops", ["opened"])]
        await later.run()
        assert await later.open() == 0, "it knows that the job was not well"


@pytest.mark.parametrize("unreadable", [frozenset[str](), frozenset({"backup"})])
async def test_a_job_that_is_deleted_closes_its_incident_and_one_whose_file_can_not_be_read_keeps_it(
    at_once: Watched, unreadable: frozenset[str]
) -> None:
    await at_once.fail(then=7)
    at_once.harness.live.remove(BACKUP)
    at_once.harness.live.set_unloadable(unreadable)
    at_once.harness.live.link()
    await at_once.turn(7)
    assert await at_once.open() == len(unreadable)
    assert await at_once.told() == [("ops", ["opened"]), ("ops", ["closed"])][: 2 - len(unreadable)]


async def test_an_edit_of_the_code_counts_failures_anew_and_a_reload_does_not() -> None:
    async with watched(replace(TELL_OPS, after_failures=3)) as w:
        for _ in range(2):
            await w.fail()
            w.harness.live.link()
            await w.turn(2)
        w.job.digest = "2"
        w.harness.live.link()
        await w.turn(2)
        await w.fail()
        assert await w.open() == 0
        await w.fail(2)
        assert await w.open() == 1


async def test_a_channel_that_comes_with_a_reload_is_told(at_once: Watched) -> None:
    at_once.settings = AlertSettings()
    await at_once.fail(then=60)
    assert await at_once.told() == []
    at_once.settings = AlertSettings(channels={"ops": OPS})
    at_once.harness.live.link()
    await at_once.turn(7)
    assert await at_once.told() == [("ops", ["opened"])]


def quiet_for(watched: Watched, minutes: int) -> QuietHours:
    """Quiet hours that have just begun, and last so long."""
    begin = datetime.fromtimestamp(watched.harness.clock.now_ms() / 1000, tz=UTC)
    return QuietHours(begin.time().replace(second=0), (begin + timedelta(minutes=minutes)).time(), "UTC")


async def test_what_is_quiet_is_told_at_its_end_and_what_is_critical_at_once() -> None:
    for level, told_then in ((Level.WARNING, []), (Level.CRITICAL, [("ops", ["opened"])])):
        async with watched() as w:
            w.job.spec = replace(
                w.job.spec, alerts=AlertPolicy(to=("ops",), after_failures=1, level=level, quiet=quiet_for(w, 30))
            )
            await w.fail()
            await w.turn(20 * 60)
            assert await w.told() == told_then
            await w.turn(20 * 60)
            assert await w.told() == [("ops", ["opened"])]


async def test_the_quiet_hours_of_a_channel_take_the_place_of_those_of_a_job() -> None:
    async with watched() as w:
        quiet = quiet_for(w, 30)
        w.job.spec = replace(w.job.spec, alerts=replace(TELL_OPS, after_failures=1, quiet=quiet))
        w.settings = AlertSettings(channels={"ops": dataclasses.replace(OPS, has_own_quiet=True)})
        await w.fail(then=10)
        assert await w.told() == [("ops", ["opened"])], "it is never quiet"

    async with watched(replace(TELL_OPS, after_failures=1)) as w:
        w.settings = AlertSettings(
            channels={"ops": dataclasses.replace(OPS, has_own_quiet=True, quiet=quiet_for(w, 30))}
        )
        await w.fail(then=60)
        assert await w.told() == []


async def test_maintenance_of_other_jobs_changes_nothing(at_once: Watched) -> None:
    at_once.begin_maintenance(30, "prices")
    await at_once.fail(then=7)
    assert await at_once.told() == [("ops", ["opened"])]


async def test_what_was_wrong_before_maintenance_is_told_of_after_it() -> None:
    async with watched(replace(TELL_OPS, after_failures=1, remind_ms=600_000)) as w:
        await w.fail(then=7)
        w.begin_maintenance(30, "back*")
        await w.turn(20 * 60)
        assert await w.told() == [("ops", ["opened"])], "no reminder"
        await w.run(then=7)
        assert (await w.open(), await w.told()) == (0, [("ops", ["opened"])]), "it is well, which counts"
        await w.turn(11 * 60)
        assert await w.told() == [("ops", ["opened"]), ("ops", ["closed"])]


async def test_a_sign_that_came_in_maintenance_and_is_there_at_its_end_counts_then(w: Watched) -> None:
    w.begin_maintenance(30)
    w.harness.runner.start(w.job, [RunRequest(trigger=DIFFERS)])
    await w.turn(5)
    assert await w.open() == 0
    await w.turn(30 * 60)
    (found,) = await w.incidents()
    assert (found.reason, found.text) == ("drift", "motd differs")
    assert await w.told() == [("ops", ["opened"])]


async def test_a_success_ends_what_drift_has_found_since_the_job_puts_its_files_right(w: Watched) -> None:
    w.harness.runner.start(w.job, [RunRequest(trigger=DIFFERS)])
    await w.turn(1)
    assert await w.open() == 1
    await w.run()
    assert await w.open() == 0


async def test_what_a_run_shows_in_maintenance_counts_at_its_end_unless_another_was_well() -> None:
    for last, open_then in ((SHORT, 1), (SUCCESS, 0)):
        async with watched(TELL_OPS) as w:
            w.begin_maintenance(30)
            await w.run(SHORT)
            await w.run(last)
            assert await w.open() == 0
            await w.turn(31 * 60)
            assert await w.open() == open_then


async def test_a_sign_that_is_looked_for_is_not_taken_in_maintenance_but_its_end_is(w: Watched) -> None:
    assert w.watcher.saw("job:backup", SignSeen("late", ""))
    await w.turn(2)
    w.begin_maintenance(30)
    assert not w.watcher.saw("job:backup", SignSeen("broken", ""))
    assert w.watcher.saw("job:backup", SignGone("late"))
    await w.turn(2)
    assert await w.harness.store.incidents.signs() == {}


async def test_very_many_signs_are_noted_a_few_at_a_time_and_wait_while_the_store_refuses(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, sizes = w.harness.store.incidents.note, list[int]()

    def counted(events: Sequence[SubjectEvent]) -> Future[list[SubjectChange]]:
        sizes.append(len(events))
        if len(sizes) == 2:
            raise StoreError("the disk is full")
        return note(events)

    monkeypatch.setattr(w.harness.store.incidents, "note", counted)
    for number in range(2 * watcher.NOTED_TOGETHER + 1):
        w.watcher.saw(f"job:{number}", SignSeen("broken", ""))
    await w.turn(20)
    assert sizes == [200, 200, 200, 1]
    assert len(await w.harness.store.incidents.signs()) == 401


async def test_a_sign_that_came_and_went_in_maintenance_is_nothing_nor_one_of_a_job_that_is_gone_by_its_end(
    w: Watched,
) -> None:
    added_ms = w.harness.clock.now_ms() - 10 * 60_000
    w.begin_maintenance(30)
    w.miss(added_ms)
    w.harness.runner.start(w.job, [RunRequest(trigger=DIFFERS)])
    await w.turn(5)
    w.watcher.attempted("ops", Attempt(), added_ms)
    w.harness.live.remove(BACKUP)
    w.harness.live.link()
    await w.turn(40 * 60)
    assert await w.harness.store.incidents.list() == []


async def test_a_channel_that_is_down_in_maintenance_of_all_is_so_at_its_end_and_of_some_jobs_at_once() -> None:
    for jobs, open_then in (((), 0), (("backup",), 1)):
        async with watched(TELL_OPS) as w:
            added_ms = w.harness.clock.now_ms() - 10 * 60_000
            w.begin_maintenance(30, *jobs)
            w.miss(added_ms)
            await w.turn(5)
            assert await w.open() == open_then
            await w.turn(31 * 60)
            assert await w.open() == 1


async def test_a_sign_that_the_store_refuses_at_the_end_of_maintenance_is_not_lost() -> None:
    async with watched(TELL_OPS) as w:
        w.begin_maintenance(30)
        w.harness.runner.start(w.job, [RunRequest(trigger=DIFFERS)])
        await w.turn(29 * 60)
        note, w.harness.store.incidents.note = w.harness.store.incidents.note, refuse  # type: ignore[method-assign, assignment]
        await w.turn(5 * 60)
        w.harness.store.incidents.note = note  # type: ignore[method-assign]
        await w.turn(20)
        assert await w.open() == 1


PAUSES = replace(TELL_OPS, after_failures=2, pause_after=3)


async def test_a_job_that_fails_too_often_is_paused_until_somebody_resumes_it_and_it_succeeds(pausing: Watched) -> None:
    await pausing.fail(2, then=3)
    assert not pausing.job.cursor.paused
    await pausing.fail(then=3)
    assert (pausing.job.cursor.paused, pausing.job.cursor.paused_for) == (True, "3 failures in a row")
    assert (await pausing.harness.store.runs.cursors())[BACKUP].paused_for == "3 failures in a row"
    (found,) = await pausing.incidents()
    assert [note.text for note in found.notes] == ["paused: 3 failures in a row"]

    await pausing.harness.scheduler.resume(pausing.job)
    assert (pausing.job.cursor.paused, pausing.job.cursor.paused_for, await pausing.open()) == (False, "", 1)
    await pausing.fail(then=3)
    assert pausing.job.cursor.paused_for == "4 failures in a row", "it fails again"
    await pausing.harness.scheduler.resume(pausing.job)
    await pausing.run(then=3)
    assert (pausing.job.cursor.paused, await pausing.open()) == (False, 0)


async def test_a_job_that_is_resumed_is_not_paused_again_by_the_next_daemon() -> None:
    async with watched(PAUSES) as w:
        await w.fail(3, then=3)
        await w.harness.scheduler.resume(w.job)
    async with watched(PAUSES, before=w.harness) as later:
        await later.turn(3)
        assert not later.job.cursor.paused


async def test_a_job_is_paused_by_the_next_daemon_where_this_one_has_no_time_to() -> None:
    async with watched(PAUSES) as w:
        for _ in range(3):
            await w.fail(then=0.1)  # the planner sleeps for a second
        assert not w.job.cursor.paused
        assert await w.harness.store.incidents.pausing() == {"job:backup": 3}
    async with watched(PAUSES, before=w.harness) as later:
        await later.turn(3)
        assert later.job.cursor.paused_for == "3 failures in a row"
        assert await w.harness.store.incidents.pausing() == {}


async def test_a_job_that_somebody_has_paused_stays_as_it_is(pausing: Watched) -> None:
    await pausing.harness.scheduler.pause(pausing.job)
    for _ in range(4):
        await pausing.fail(then=3)
    assert (pausing.job.cursor.paused, pausing.job.cursor.paused_for) == (True, "")
    (found,) = await pausing.incidents()
    assert found.notes == ()
    assert await pausing.harness.store.incidents.pausing() == {}


async def test_a_job_that_is_gone_before_it_is_paused_holds_nobody_up(pausing: Watched) -> None:
    for _ in range(3):
        await pausing.fail(then=0.1)
    pausing.harness.live.remove(BACKUP)
    pausing.harness.live.link()
    await pausing.turn(10)
    assert (await pausing.harness.store.incidents.pausing(), await pausing.open()) == ({}, 0)


async def test_a_job_that_goes_while_it_is_paused_holds_nobody_up(pausing: Watched) -> None:
    with capture_logs() as lines:
        await pausing.fail(3)
        pausing.job.gone = True
        await pausing.turn(10)
    assert not [line for line in lines if line["log_level"] == "error"]
    assert await pausing.told() == [("ops", ["opened"])]


async def test_a_pause_that_the_store_refuses_is_made_up_for(pausing: Watched) -> None:
    pausing.disk_is_full = True
    await pausing.fail(3, then=10)
    assert not pausing.job.cursor.paused
    pausing.disk_is_full = False
    await pausing.turn(10)
    assert pausing.job.cursor.paused


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_job_that_flapped_as_the_clock_was_set_back_is_calm_no_later(restarts: bool) -> None:
    policy = replace(TELL_OPS, after_failures=1, flapping=Flapping(2, 600_000))
    async with watched(policy) as w:
        for _ in range(2):
            await w.fail()
            await w.run()
        assert await w.open() == 1
        w.harness.clock.jump(-24 * 3_600)
        if not restarts:
            await w.turn(70)
            assert await w.open() == 0
    async with watched(policy, before=w.harness) as later:
        await later.turn(70)
        assert await later.open() == 0


async def test_where_the_store_refuses_it_is_planned_later(at_once: Watched) -> None:
    plan, at_once.harness.store.incidents.plan = at_once.harness.store.incidents.plan, refuse  # type: ignore[method-assign, assignment]
    await at_once.fail(then=20)
    assert await at_once.told() == []
    at_once.harness.store.incidents.plan = plan  # type: ignore[method-assign]
    await at_once.turn(12)
    assert await at_once.told() == [("ops", ["opened"])]


async def test_nothing_wakes_where_nothing_is_wrong(w: Watched) -> None:
    await w.turn(5)
    await w.run()
    before = w.harness.clock.pending
    await w.turn(100)
    assert w.harness.clock.pending == before


def test_ends_that_count() -> None:
    by_hand_run = run_of({"type": "manual"})
    assert event_of(by_hand_run, end_of()) == Succeeded()
    assert event_of(by_hand_run, end_of(Outcome.FAILED, "no space")) == Failed("no space")
    assert event_of(by_hand_run, end_of(Outcome.LOST)) == Failed("lost")
    assert event_of(by_hand_run, end_of(Outcome.STOPPED)) is None
    assert event_of(by_hand_run, end_of(Outcome.SKIPPED)) is None
    retry = replace(run_of({"type": "retry", "of": 1}), attempt=2)
    tried_before = event_of(retry, end_of(Outcome.SKIPPED, "open"))
    assert event_text(tried_before) == "attempt 1 failed, the next was skipped: open"
    assert event_of(replace(retry, trigger=Trigger(type="retry", of=RunId(1), lost=1)), end_of(Outcome.SKIPPED)) is None
    cancelled = replace(end_of(Outcome.FAILED), failure=Failure.CANCELLED)
    assert event_of(by_hand_run, cancelled) is None, "somebody wanted it to end"
    for aside in ("debug", "dry_run"):
        assert event_of(run_of({"type": "manual", aside: True}), end_of(Outcome.FAILED)) is None
    assert len(event_text(event_of(by_hand_run, end_of(Outcome.FAILED, "x" * 5000)))) == 500
    drift = run_of({"type": "drift", "finding": "/etc/motd differs"})
    assert event_of(drift, end_of(Outcome.FAILED, "/etc/motd differs")) == SignSeen("drift", "/etc/motd differs")
    assert event_of(drift, end_of()) == SignGone("drift")


def event_text(event: object) -> str:
    assert isinstance(event, Failed)
    return event.text


def refuse(*_arguments: object) -> None:
    raise StoreError("disk full")


def run_of(trigger: Mapping[str, object]) -> Run:
    return Run(id=RunId(1), job=BACKUP, state=RunState.RUNNING, trigger=convert(trigger, Trigger))


def end_of(outcome: Outcome = Outcome.SUCCESS, reason: str = "") -> End:
    return End(run=RunId(1), ended_ms=5, outcome=outcome, reason=reason)


async def test_a_channel_that_takes_nothing_is_told_of_on_the_others_until_it_takes_a_message(w: Watched) -> None:
    boss = AlertChannelSettings(name="boss", webhook="https://example.org/boss")
    policy = AlertPolicy(to=("ops", "boss"), remind_ms=None)
    w.settings = AlertSettings(channels={"ops": OPS, "boss": boss}, policy=policy)
    added_ms = w.harness.clock.now_ms()
    await w.turn(5 * 60)
    w.miss(added_ms)
    await w.turn(10)
    (found,) = await w.incidents()
    assert (found.subject, found.reason, found.text) == ("channel:ops", "down", "answered 500")
    assert await w.told() == [("boss", ["opened"])]
    w.watcher.attempted("ops", Attempt(), added_ms)
    await w.turn(10)
    assert (await w.open(), await w.told()) == (0, [("boss", ["opened"]), ("boss", ["closed"])])


async def test_a_channel_that_was_down_and_is_gone_from_the_settings_is_so_no_more(w: Watched) -> None:
    added_ms = w.harness.clock.now_ms() - 10 * 60_000
    w.miss(added_ms)
    await w.turn(2)
    assert await w.open() == 1
    async with watched(TELL_OPS, w.harness) as later:
        later.settings = AlertSettings(channels={})
        later.watcher.wake()
        await later.turn(2)
        assert await later.open() == 0


async def test_a_template_that_fails_is_told_as_no_more_than_that_until_it_writes_a_text(w: Watched) -> None:
    w.settings = AlertSettings(channels={"ops": OPS}, policy=AlertPolicy(to=("ops",)))
    for _ in range(2):
        w.watcher.attempted("ops", Attempt(template_problem="title: no"), 0)
    w.watcher.attempted("ops", NOT_TAKEN, w.harness.clock.now_ms())  # nothing was written
    await w.turn(2)
    (found,) = await w.incidents()
    assert (found.subject, found.level, found.reason) == ("channel:ops", Level.INFO, "template")
    assert w.watcher.health.troubled == ["ops"]
    w.watcher.attempted("ops", Attempt(), 0)
    await w.turn(2)
    assert (await w.open(), w.watcher.health.troubled) == (0, [])


async def test_an_address_that_can_not_be_used_is_told_at_once_and_ends_as_a_trial_arrives_but_not_as_one_fails(
    w: Watched,
) -> None:
    w.miss(None, times=9)
    await w.turn(2)
    assert await w.open() == 0
    w.watcher.attempted("ops", Attempt.without_address("no service"), w.harness.clock.now_ms())
    w.miss(None, times=9)
    await w.turn(2)
    (found,) = await w.incidents()
    assert (found.level, found.reason, found.text) == (Level.WARNING, "address", "no service")
    w.watcher.attempted("ops", Attempt(), None)
    await w.turn(2)
    assert await w.open() == 0


def policy_now(w: Watched, subject: str) -> AlertPolicy:
    return run_at_once(w.watcher.subjects_now([subject]))[subject].policy


async def test_of_a_job_whose_file_can_not_be_read_they_are_told_that_config_toml_names(w: Watched) -> None:
    assert policy_now(w, "job:other").to == ()
    w.watcher.without_file = lambda job: AlertPolicy(to=(f"who cares for {job}",))
    assert policy_now(w, "job:other").to == ("who cares for other",)
    assert policy_now(w, "job:backup") == TELL_OPS


# Several nodes


async def test_the_chief_alone_tells_and_a_new_one_goes_on(w: Watched) -> None:
    ownership = w.harness.live.ownership
    ownership.node, ownership.owned = "fra", set()
    await w.fail(2, then=7)
    assert (await w.open(), await w.told()) == (1, [])
    ownership.owned.add(CHIEF)
    w.watcher.wake()
    await w.turn(5)
    assert await w.told() == [("ops", ["opened"])]
    assert not w.watcher.planning.locked()


async def test_failures_that_another_node_noted_end_here_with_the_next_success(w: Watched) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(w.harness.store.incidents, "tell", lambda _: None)  # as by another node
        failure = SubjectEvent(subject="job:backup", event=Failed("x"), policy=TELL_OPS, at_ms=w.harness.clock.now_ms())
        await w.harness.store.incidents.note([failure, failure])
        await w.turn(0)
    await w.watcher.load()
    assert await w.open() == 1
    await w.run(then=7)
    assert await w.open() == 0


async def test_a_channel_is_judged_by_the_node_that_sends_to_it(w: Watched) -> None:
    ownership = w.harness.live.ownership
    ownership.node, ownership.owned = "fra", set()
    w.watcher.found_in_channel("ops", "address", "no such host")
    await w.turn(5)
    assert await w.open() == 0
    ownership.owned.add(slot_of_target(Target(Channel.ALERT, "ops")))
    await w.watcher.load()
    w.watcher.found_in_channel("ops", "address", "no such host")
    await w.turn(5)
    assert await w.open() == 1
