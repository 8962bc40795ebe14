"""What is wrong beside failing runs, as jobs and health know it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from spyweb.alerts.signs import CHECK_S, IN_A_CHECK, Conditions, Now, compare, signs_of
from spyweb.alerts.watcher import shown_by
from spyweb.incidents.policy import NOBODY, AlertPolicy
from spyweb.incidents.truth import Sign, SignGone, SignSeen, name_of
from spyweb.lua.endings import failed
from spyweb.model import At, Cron, Every, JobId, Never, Outcome, Pings, Run, RunId, RunState, Schedule
from spyweb.ownership import CHIEF
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.schedules.due import UNARMED
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.runs import End
from tests.fakes.harness import make_job
from tests.fakes.signs import BACKUP, Watched, watched

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
FLOOR = NOW - HOUR  # where the clock was when the daemon began
LATE = AlertPolicy(late_after_ms=10 * MINUTE)
SILENT = AlertPolicy(no_success_ms=DAY)
DAILY = Cron(expression="0 3 * * *", timezone="UTC")


def a_job(
    policy: AlertPolicy, *, schedule: Schedule = DAILY, active_ms: int | None = NOW - 30 * DAY, **of_job: object
) -> LiveJob:
    job = make_job(alerts=policy, schedule=schedule)
    job.cursor = replace(job.cursor, due_ms=NOW - DAY, schedule="-", active_since_ms=active_ms)
    for name, value in of_job.items():
        setattr(job, name, value)
    return job


def found(job: LiveJob, now_ms: int, **noted: Sign) -> dict[str, int]:
    """Return the signs of a job, each with since when."""
    signs = signs_of(job, Conditions(), noted, Now(now_ms, FLOOR))
    return {sign: seen.since_ms for sign, seen in signs.items()}


def test_a_job_is_late_once_nothing_has_started_for_so_long_after_a_due_time() -> None:
    job = a_job(LATE, started_ms=NOW - 21 * HOUR)  # yesterday's run
    due_ms = NOW + 3 * HOUR
    assert found(job, due_ms) == {}
    assert found(job, due_ms + 10 * MINUTE - 1) == {}
    assert found(job, due_ms + 10 * MINUTE) == {"late": due_ms}
    assert found(job, due_ms + 3 * DAY) == {"late": due_ms}, "since the first of them"
    job.started_ms = due_ms + 5 * MINUTE
    assert found(job, due_ms + 10 * MINUTE) == {}


@pytest.mark.parametrize(
    ("schedule", "due_ms"),
    [(Every(period_ms=HOUR), NOW + HOUR), (At(at_ms=NOW + 7), NOW + 7), (DAILY, NOW + 3 * HOUR), (Never(), None)],
)
def test_each_schedule_has_a_first_due_time_after_the_last_start(schedule: Schedule, due_ms: int | None) -> None:
    job = a_job(LATE, schedule=schedule, started_ms=NOW)
    assert found(job, NOW + DAY) == ({} if due_ms is None else {"late": due_ms})


def test_the_due_times_of_an_every_job_go_by_its_cursor_also_where_that_has_moved_over_skipped_ones() -> None:
    job = a_job(LATE, schedule=Every(period_ms=HOUR), started_ms=NOW - 5 * HOUR)
    job.cursor = replace(job.cursor, due_ms=NOW - 5 * MINUTE)  # a run that takes hours: its due times are skipped
    assert found(job, NOW + 1) == {"late": NOW - 4 * HOUR - 5 * MINUTE}


def test_jitter_puts_off_what_is_late() -> None:
    job = make_job(alerts=LATE, schedule=DAILY, jitter_ms=2 * HOUR)
    job.cursor = replace(job.cursor, schedule="-", active_since_ms=NOW)
    (since_ms,) = found(job, NOW + DAY).values()
    assert NOW + 3 * HOUR < since_ms <= NOW + 5 * HOUR
    assert found(job, since_ms + 10 * MINUTE - 1) == {}


def test_a_job_that_came_back_is_not_late_for_what_was_due_before() -> None:
    job = a_job(LATE, active_ms=NOW + 4 * HOUR, started_ms=NOW - 9 * DAY)
    assert found(job, NOW + 5 * HOUR) == {}
    assert found(job, NOW + 28 * HOUR) == {"late": NOW + 27 * HOUR}


def test_a_paused_job_is_neither_late_nor_silent_but_what_it_was_before_it_stays() -> None:
    job = a_job(AlertPolicy(late_after_ms=MINUTE, no_success_ms=DAY))
    assert found(job, NOW + DAY).keys() == {"late", "silent"}
    job.cursor = replace(job.cursor, paused=True)
    assert found(job, NOW + DAY) == {}
    noted = {"late": Sign(NOW, ""), "silent": Sign(NOW - 2 * DAY, "")}
    assert found(job, NOW + DAY, **noted).keys() == {"late", "silent"}


def test_what_is_late_stays_until_a_run_starts_and_what_is_silent_until_one_succeeds() -> None:
    policy = AlertPolicy(late_after_ms=MINUTE, no_success_ms=DAY)
    job = a_job(policy, active_ms=NOW + DAY)  # resumed after it was noted
    noted = {"late": Sign(NOW, ""), "silent": Sign(NOW - 2 * DAY, "")}
    assert found(job, NOW + DAY, **noted).keys() == {"late", "silent"}
    job.started_ms = NOW + DAY
    assert found(job, NOW + DAY, **noted).keys() == {"silent"}
    job.succeeded_ms = NOW + DAY
    assert found(job, NOW + DAY, **noted) == {}


def test_a_run_that_starts_in_the_moment_in_which_it_is_due_is_not_late() -> None:
    assert found(a_job(LATE, started_ms=NOW), NOW + 20 * MINUTE, late=Sign(NOW, "")) == {}


def test_the_success_from_which_it_is_counted_does_not_end_what_is_silent_also_where_the_job_came_back() -> None:
    job = a_job(SILENT, succeeded_ms=NOW - 2 * DAY, active_ms=NOW)
    assert found(job, NOW, silent=Sign(NOW - 2 * DAY, "")).keys() == {"silent"}


def test_settings_that_ask_no_longer_end_what_is_noted() -> None:
    noted = {"late": Sign(NOW - DAY, ""), "silent": Sign(NOW - 2 * DAY, "")}
    assert found(a_job(AlertPolicy()), NOW, **noted) == {}
    patient = AlertPolicy(late_after_ms=7 * DAY, no_success_ms=60 * DAY)
    assert found(a_job(patient, started_ms=NOW - 3 * DAY), NOW, **noted) == {}


def test_a_job_is_silent_so_long_after_its_last_success_or_after_it_was_added() -> None:
    assert found(a_job(SILENT, succeeded_ms=NOW - DAY + 1), NOW) == {}
    assert found(a_job(SILENT, succeeded_ms=NOW - DAY), NOW) == {"silent": NOW - DAY}
    assert found(a_job(SILENT, active_ms=NOW - DAY), NOW) == {"silent": NOW - DAY}
    assert found(a_job(SILENT, active_ms=NOW - 1, succeeded_ms=NOW - 9 * DAY), NOW) == {}, "it came back just now"
    assert found(a_job(SILENT, active_ms=None), NOW) == {}, "it is not taken up yet"


@pytest.mark.parametrize(("policy", "sign"), [(LATE, "late"), (SILENT, "silent")])
def test_where_the_clock_was_set_back_it_counts_from_there(policy: AlertPolicy, sign: str) -> None:
    ahead = NOW + 5 * DAY
    job = a_job(policy, active_ms=ahead, started_ms=ahead, succeeded_ms=ahead)
    noted = {sign: Sign(ahead, "")}
    assert found(job, NOW) == found(job, NOW, **noted) == {}
    assert found(job, NOW + 2 * DAY).keys() == {sign}


def test_the_troubles_of_a_job_are_signs_of_it_and_those_of_others_are_not() -> None:
    mine = JobId("prices")
    conditions = Conditions(broken={mine: "x" * 999}, quarantined={mine: "it crashed"}, held_back={JobId("b"): "no"})
    signs = signs_of(a_job(AlertPolicy()), conditions, {}, Now(NOW, FLOOR))
    assert signs == {"broken": Sign(NOW, "x" * 500), "quarantined": Sign(NOW, "it crashed")}


def test_the_troubles_of_a_part_of_the_daemon() -> None:
    conditions = Conditions(parts={"store": "nothing is stored"})
    assert conditions.of_part("store", NOW) == {"refusing": Sign(NOW, "nothing is stored")}
    assert conditions.of_part("disk", NOW) == {}


def test_what_is_noted_is_led_to_what_is_found_and_signs_of_runs_stay() -> None:
    signs = ("late", "broken", "failing", "empty", "stuck")
    noted = {sign: Sign(number, "a") for number, sign in enumerate(signs, 1)}
    events = list(compare(noted, {"broken": Sign(7, "b"), "silent": Sign(6, "c")}))
    assert events == [SignSeen("silent", "c", 6), SignGone("late"), SignGone("stuck")]


@pytest.mark.parametrize(
    ("note", "errors", "expected"),
    [
        ("", 0, {}),
        ("held the loop 0.3 s: op", 1, {"storage": "1 storage error"}),
        ("not as expected: no items in 3 runs in a row; slow", 0, {"empty": "no items in 3 runs in a row"}),
        ("not as expected: http status 404; nothing found yet", 0, {}),
        ("not as expected: http status 404", 2, {"empty": "http status 404", "storage": "2 storage errors"}),
    ],
)
def test_what_the_end_of_a_run_shows(note: str, errors: int, expected: dict[str, str]) -> None:
    end = End(run=RunId(1), ended_ms=NOW, outcome=Outcome.SUCCESS, note=note, storage_errors=errors)
    assert shown_by(end) == expected


HOURLY_PINGS = Pings(schedule=Every(period_ms=HOUR), grace_ms=10 * MINUTE)


def a_pinged_job(last_ms: int, schedule: Pings = HOURLY_PINGS, **of_cursor: object) -> LiveJob:
    job = make_job(schedule=schedule)
    job.cursor = replace(job.cursor, due_ms=last_ms, schedule="-", **of_cursor)
    return job


def test_a_job_elsewhere_is_late_when_it_has_not_told_of_itself_within_the_grace() -> None:
    job = a_pinged_job(NOW)
    assert found(job, NOW + 70 * MINUTE - 1) == {}
    assert found(job, NOW + 70 * MINUTE) == found(job, NOW + DAY) == {"late": NOW + HOUR}
    (sign,) = signs_of(job, Conditions(), {}, Now(NOW + DAY, FLOOR)).values()
    assert sign.text == "a ping was expected, and none has come within 10m of that"


def test_a_ping_ends_that_it_is_late_even_where_it_is_late_again_before_anybody_looks() -> None:
    job = a_pinged_job(NOW)
    noted = Sign(NOW + HOUR, "")
    job.cursor = replace(job.cursor, due_ms=NOW + 2 * HOUR)
    assert found(job, NOW + DAY, late=noted) == {}
    assert found(job, NOW + DAY) == {"late": NOW + 3 * HOUR}


def test_before_the_first_ping_nothing_is_late_nor_what_is_under_way_elsewhere_nor_a_paused_or_disabled_job() -> None:
    assert found(a_pinged_job(UNARMED), NOW + 9 * DAY) == {}
    job = a_pinged_job(NOW)
    job.queue.in_flight[RunId(1)] = Run(id=RunId(1), job=job.id, state=RunState.RUNNING)
    assert found(job, NOW + DAY, late=Sign(NOW, "")) == {}
    assert found(a_pinged_job(NOW, paused=True), NOW + DAY, late=Sign(NOW, "")) == {}
    disabled = a_pinged_job(NOW)
    disabled.spec = make_job(schedule=HOURLY_PINGS, enabled=False).spec
    assert found(disabled, NOW + DAY) == {}


def test_a_cron_expects_pings_by_the_clock_of_its_zone() -> None:
    berlin = Cron(expression="0 3 * * *", timezone="Europe/Berlin")
    job = a_pinged_job(NOW, Pings(schedule=berlin, grace_ms=HOUR))  # it is 01:00 there
    assert found(job, NOW + 3 * HOUR - 1) == {}
    assert found(job, NOW + 3 * HOUR) == {"late": NOW + 2 * HOUR}


def test_pings_that_nobody_could_hear_are_late_when_the_grace_has_passed_once_more() -> None:
    job = a_pinged_job(NOW)
    job.kept_since_ms = NOW + DAY  # the daemon was down
    assert found(job, NOW + DAY + 10 * MINUTE - 1) == {}
    assert found(job, NOW + DAY + 10 * MINUTE) == {"late": NOW + HOUR}
    assert found(job, NOW + DAY, late=Sign(NOW + HOUR, "")) == {"late": NOW + HOUR}, "it was late before"
    job.kept_since_ms = NOW + 65 * MINUTE  # it was back in time
    assert found(job, NOW + 70 * MINUTE) == {"late": NOW + HOUR}


LATE_SOON = AlertPolicy(late_after_ms=5 * MINUTE)
SILENT_SOON = AlertPolicy(no_success_ms=10 * MINUTE)


@pytest.fixture
async def w() -> AsyncIterator[Watched]:
    async with watched() as opened:
        yield opened


async def test_a_file_that_is_broken_for_moments_is_nothing_and_one_that_stays_so_is_an_incident(w: Watched) -> None:
    for seconds in (11, *[CHECK_S] * 20):
        w.conditions = Conditions(broken={BACKUP: "line 4"})
        await w.turn(seconds)
        w.conditions = Conditions()
        await w.turn(CHECK_S)
    assert await w.incidents(is_open=False) == []

    w.conditions = Conditions(broken={BACKUP: "line 4"})
    await w.turn(30)
    (incident,) = await w.incidents()
    assert (incident.subject, incident.reason, incident.text) == ("job:backup", "broken", "line 4")
    assert 12_000 <= incident.opened_ms - incident.since_ms <= 20_000, "since it was seen first"
    w.conditions = Conditions()
    await w.turn(CHECK_S + 2)
    assert await w.incidents() == []


async def test_a_job_that_never_loaded_has_an_incident_too_until_its_file_is_gone(w: Watched) -> None:
    w.harness.live.set_unloadable(frozenset({"other"}))
    w.conditions = Conditions(broken={JobId("other"): "line 1"})
    await w.turn(30)
    assert await w.signs() == {"job:other broken": "line 1"}
    w.conditions = Conditions()
    w.harness.live.set_unloadable(frozenset())
    await w.turn(10)
    assert await w.incidents() == []


async def test_the_parts_of_the_daemon_have_an_incident_each(w: Watched) -> None:
    w.conditions = Conditions(parts={"store": "nothing is stored", "workers": "no worker is up"})
    await w.turn(30)
    assert await w.signs() == {
        "daemon:store refusing": "nothing is stored",
        "daemon:workers missing": "no worker is up",
    }
    w.conditions = Conditions(parts={"store": "nothing is stored"})
    await w.turn(10)
    assert [each.subject for each in await w.incidents()] == ["daemon:store"]


async def test_what_is_told_of_a_part_has_lasted_since_it_began_and_not_since_it_was_seen(w: Watched) -> None:
    began_ms = w.harness.clock.now_ms()
    await w.turn(7)
    for _ in range(40):
        lasting_ms = w.harness.clock.now_ms() - began_ms
        w.conditions = Conditions(parts={"store": "no due run could be claimed"}, lasting_ms={"store": lasting_ms})
        await w.turn(1)
    (incident,) = await w.incidents()
    assert incident.since_ms - began_ms <= 1_000, "as exact as it is measured here"


async def test_one_incident_has_all_signs_of_a_job_and_its_history() -> None:
    async with watched(AlertPolicy(after_failures=1)) as w:
        await w.run(failed("no space"))
        w.conditions = Conditions(broken={BACKUP: "line 4"}, quarantined={BACKUP: "it crashed"})
        await w.turn(30)
        await w.run()
        w.conditions = Conditions(quarantined={BACKUP: "it crashed"})
        await w.turn(10)
        (incident,) = await w.incidents()
        assert [note.text for note in incident.notes] == [
            "broken: line 4",
            "quarantined: it crashed",
            "failing: ended",
            "broken: ended",
        ]


async def test_a_job_that_nothing_starts_is_late_and_any_run_ends_that() -> None:
    async with watched(LATE_SOON, schedule=Every(period_ms=HOUR)) as w:
        await w.turn(60)  # its first run
        w.harness.timers.stop()
        await w.turn(60 * 60)
        assert await w.incidents() == []
        await w.turn(5 * 60)
        (incident,) = await w.incidents()
        assert (incident.reason, incident.text) == ("late", "it was due, and no run has started for 5m")
        assert incident.opened_ms - incident.since_ms > 5 * MINUTE
        await w.run(failed("x"))
        await w.turn(CHECK_S + 2)
        assert await w.incidents() == []


async def test_a_job_whose_file_loads_only_some_time_after_the_start_is_counted_from_its_last_success_too() -> None:
    def other() -> LiveJob:
        return make_job("other", alerts=SILENT_SOON, schedule=Never())

    async with watched(SILENT_SOON) as w:
        await w.harness.settle(job := other())
        await w.turn(9 * 60)
        w.harness.runner.start(job, [by_hand()])
        await w.turn(1)
    async with watched(SILENT_SOON, w) as later:
        await later.turn(30)
        await later.harness.settle(other())
        await later.turn(2 * 60)
        assert (await later.signs()).keys() == {"job:backup silent"}
        await later.turn(8 * 60)
        assert (await later.signs()).keys() == {"job:backup silent", "job:other silent"}


async def test_a_clock_that_is_set_back_neither_opens_nor_holds_an_incident() -> None:
    async with watched(SILENT_SOON) as w:
        await w.turn(11 * 60)
        assert len(await w.incidents()) == 1
        w.harness.clock.jump(-3600)
        await w.turn(30)
        assert await w.incidents() == []
        await w.turn(11 * 60)
        assert len(await w.incidents()) == 1


async def test_a_sign_that_a_job_had_before_it_was_disabled_comes_anew_with_it(w: Watched) -> None:
    w.conditions = Conditions(broken={BACKUP: "line 4"})
    await w.turn(30)
    for is_enabled in (False, True):
        w.job.spec = replace(w.job.spec, enabled=is_enabled)
        w.harness.live.link()
        await w.turn(30)
        assert len(await w.incidents()) == is_enabled
    assert len(await w.incidents(is_open=False)) == 1


async def test_a_job_stays_late_while_its_file_does_not_load() -> None:
    async with watched(SILENT_SOON) as w:
        await w.turn(11 * 60)
        w.harness.live.remove(BACKUP)
        w.harness.live.set_unloadable(frozenset({"backup"}))
        w.conditions = Conditions(broken={BACKUP: "line 4"})
        await w.turn(30)
        assert (await w.signs()).keys() == {"job:backup silent", "job:backup broken"}
        assert await w.incidents(is_open=False) == [], "it is one incident all the time"


async def test_a_disabled_job_has_no_signs() -> None:
    async with watched(SILENT_SOON, enabled=False) as w:
        w.conditions = Conditions(broken={BACKUP: "line 4"})
        await w.turn(20 * 60)
        assert await w.incidents() == []


async def test_of_very_many_jobs_each_has_its_turn() -> None:
    async with watched(SILENT_SOON, jobs=2 * IN_A_CHECK + 5) as w:
        await w.turn(10 * 60 + 6 * CHECK_S + 20)
        assert len(await w.signs()) == 2 * IN_A_CHECK + 5


async def test_after_a_stop_has_begun_nobody_looks(w: Watched) -> None:
    await w.turn(CHECK_S + 1)
    w.conditions = Conditions(broken={BACKUP: "line 4"})
    w.watch.stop()
    await w.turn(60)
    assert await w.signs() == {}


async def test_a_node_notes_its_own_jobs_and_parts_and_the_chief_ends_what_a_node_that_is_gone_has_left(
    w: Watched,
) -> None:
    ownership = w.harness.live.ownership
    ownership.node, ownership.nodes, ownership.owned = "fra", frozenset({"ams", "fra"}), set()
    w.job.mine = False
    left = SubjectEvent(
        subject="daemon:ams/disk", event=SignSeen("stuck", "no answer"), policy=NOBODY, at_ms=w.harness.clock.now_ms()
    )
    await w.harness.store.incidents.note([left])
    w.conditions = Conditions(broken={BACKUP: "line 4"}, parts={"store": "nothing is stored"})
    await w.turn(30)
    both = {"daemon:ams/disk stuck": "no answer", "daemon:fra/store refusing": "nothing is stored"}
    assert await w.signs() == both

    ownership.nodes = frozenset({"fra"})
    w.watcher.wake()
    await w.turn(5)
    assert await w.signs() == both, "another node is the chief"
    ownership.owned.add(CHIEF)
    w.watcher.wake()
    await w.turn(5)
    assert await w.signs() == {"daemon:fra/store refusing": "nothing is stored"}


async def test_the_chief_notes_each_pool_of_jobs_that_no_node_may_run_until_one_may(w: Watched) -> None:
    ownership = w.harness.live.ownership
    ownership.node, ownership.nodes, ownership.owned = "fra", frozenset({"fra"}), set()
    w.conditions = Conditions(pools=["label:gpu", "node:ams"])
    await w.turn(30)
    assert await w.signs() == {}, "another node is the chief"
    ownership.owned.add(CHIEF)
    await w.turn(30)
    nobody = "no node is up that may run these jobs"
    both = {"daemon:label:gpu unserved": nobody, "daemon:node:ams unserved": nobody}
    assert await w.signs() == both
    (first, _) = await w.harness.store.incidents.list(is_open=True)
    assert name_of(first.subject) in ("the pool label:gpu", "the pool node:ams")
    ownership.nodes = frozenset({"fra", "ber"})
    w.watcher.wake()
    await w.turn(5)
    assert await w.signs() == both, "another node is no reason to end it"
    w.conditions = Conditions(pools=["node:ams"])
    await w.turn(30)
    assert await w.signs() == {"daemon:node:ams unserved": nobody}


async def test_what_was_noted_elsewhere_ends_here_once_the_job_has_come(w: Watched) -> None:
    event = SubjectEvent(
        subject="job:backup", event=SignSeen("broken", "line 4"), policy=NOBODY, at_ms=w.harness.clock.now_ms()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(w.harness.store.incidents, "tell", lambda _: None)  # as by another node
        await w.harness.store.incidents.note([event])
        await w.turn(0)
    await w.turn(30)
    assert await w.signs() == {"job:backup broken": "line 4"}
    await w.watcher.load()
    await w.watch.load()
    await w.turn(CHECK_S + 2)
    assert await w.signs() == {}
