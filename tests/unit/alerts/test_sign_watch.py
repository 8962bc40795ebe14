"""Signs that come and go, and what is noted of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from spyweb.alerts.sign_watch import AT_A_LOOK, LOOK_S
from spyweb.alerts.signs import Conditions
from spyweb.incidents.policy import AlertPolicy
from spyweb.lua.endings import failed
from spyweb.model import Every, JobId, Never
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from tests.fakes.harness import make_job
from tests.fakes.signs import BACKUP, Watched, watched

MINUTE_MS = 60_000
LATE = AlertPolicy(late_after_ms=5 * MINUTE_MS)
SILENT = AlertPolicy(no_success_ms=10 * MINUTE_MS)


@pytest.fixture
async def w() -> AsyncIterator[Watched]:
    async with watched() as opened:
        yield opened


async def test_a_file_that_is_broken_for_a_moment_is_nothing_and_one_that_stays_so_is_an_incident(w: Watched) -> None:
    w.conditions = Conditions(broken={BACKUP: "line 4"})
    await w.turn(11)
    w.conditions = Conditions()
    await w.turn(20)
    assert await w.incidents(is_open=False) == []

    w.conditions = Conditions(broken={BACKUP: "line 4"})
    await w.turn(30)
    (incident,) = await w.incidents()
    assert (incident.subject, incident.reason, incident.text) == ("job:backup", "broken", "line 4")
    assert 12_000 <= incident.opened_ms - incident.since_ms <= 20_000, "since it was seen first"
    w.conditions = Conditions()
    await w.turn(LOOK_S + 2)
    assert await w.incidents() == []


async def test_a_sign_that_flickers_must_last_anew_each_time(w: Watched) -> None:
    for _ in range(20):
        w.conditions = Conditions(broken={BACKUP: "line 4"})
        await w.turn(LOOK_S)
        w.conditions = Conditions()
        await w.turn(LOOK_S)
    assert await w.incidents(is_open=False) == []


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
            "failing: over",
            "broken: over",
        ]


async def test_a_job_that_nothing_starts_is_late_and_any_run_ends_that() -> None:
    async with watched(LATE, schedule=Every(period_ms=60 * MINUTE_MS)) as w:
        await w.turn(60)  # its first run
        w.harness.timers.stop_jobs()
        await w.turn(60 * 60)
        assert await w.incidents() == []
        await w.turn(5 * 60)
        (incident,) = await w.incidents()
        assert (incident.reason, incident.text) == ("late", "it was due, and no run has started for 5m")
        assert incident.opened_ms - incident.since_ms > 5 * MINUTE_MS
        await w.run(failed("x"))
        await w.turn(LOOK_S + 2)
        assert await w.incidents() == []


async def test_a_job_whose_file_loads_only_some_time_after_the_start_is_counted_from_its_last_success_too() -> None:
    def other() -> LiveJob:
        return make_job("other", alerts=SILENT, schedule=Never())

    async with watched(SILENT) as w:
        await w.harness.settle(job := other())
        await w.turn(9 * 60)
        w.harness.runner.start(job, [by_hand()])
        await w.turn(1)
    async with watched(SILENT, w) as later:
        await later.turn(30)
        await later.harness.settle(other())
        await later.turn(2 * 60)
        assert (await later.signs()).keys() == {"job:backup silent"}
        await later.turn(8 * 60)
        assert (await later.signs()).keys() == {"job:backup silent", "job:other silent"}


async def test_a_clock_that_is_set_back_neither_opens_nor_holds_an_incident() -> None:
    async with watched(SILENT) as w:
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
    async with watched(SILENT) as w:
        await w.turn(11 * 60)
        w.harness.live.remove(BACKUP)
        w.harness.live.set_unloadable(frozenset({"backup"}))
        w.conditions = Conditions(broken={BACKUP: "line 4"})
        await w.turn(30)
        assert (await w.signs()).keys() == {"job:backup silent", "job:backup broken"}
        assert await w.incidents(is_open=False) == [], "it is one incident all the time"


async def test_a_disabled_job_has_no_signs() -> None:
    async with watched(SILENT, enabled=False) as w:
        w.conditions = Conditions(broken={BACKUP: "line 4"})
        await w.turn(20 * 60)
        assert await w.incidents() == []


async def test_of_very_many_jobs_each_has_its_turn() -> None:
    async with watched(SILENT, jobs=2 * AT_A_LOOK + 5) as w:
        await w.turn(10 * 60 + 6 * LOOK_S + 20)
        assert len(await w.signs()) == 2 * AT_A_LOOK + 5


async def test_after_a_stop_has_begun_nobody_looks(w: Watched) -> None:
    await w.turn(LOOK_S + 1)
    w.conditions = Conditions(broken={BACKUP: "line 4"})
    w.watch.stop()
    await w.turn(60)
    assert await w.signs() == {}
