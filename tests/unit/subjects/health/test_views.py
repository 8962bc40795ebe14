"""Whether the daemon makes progress."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.stalls import LoopStats
from spyweb.subjects.health import views
from spyweb.subjects.health.remedies import REMEDIES
from tests.fakes.daemon_service import NOW_MS, make_stats, make_vitals, three_states


@pytest.mark.parametrize(
    ("lag_ms", "waited_s", "count"),
    [
        (0, 0.0, 0),
        (views.SCHEDULER_STALLED_MS, views.WRITER_STALLED_S, 0),
        (views.SCHEDULER_STALLED_MS + 1, 0.0, 1),
        (0, views.WRITER_STALLED_S + 1, 1),
        (views.SCHEDULER_STALLED_MS + 1, views.WRITER_STALLED_S + 1, 2),
    ],
)
def test_a_scheduler_or_writer_that_stands_still_is_a_problem(lag_ms: int, waited_s: float, count: int) -> None:
    problems = views.find_problems(lag_ms, make_stats(stalled_s=waited_s))
    assert len(problems) == count


def test_where_the_database_lies_is_told_to_nobody_who_can_reach_the_port() -> None:
    stats = make_stats(path="/srv/x/spyweb.db", failed="/srv/x/spyweb.db-wal: was removed")
    assert views.find_problems(0, stats) == ["nothing is stored: spyweb.db-wal: was removed"]


POOL = make_vitals().pool
STALLED = LoopStats(stalls=2, worst_ms=2800, last_at_ms=1_000, last="op state.set of prices, run 7, 2.8 s")


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"dead_messages": 1}, "1 message never arrived and was given up: `spyweb outbox` lists them"),
        ({"dead_messages": 2}, "2 messages never arrived and were given up: `spyweb outbox` lists them"),
        (
            {"troubled_channels": ("ops", "phone")},
            "notification channels have problems (ops, phone): `spyweb alerts list` shows them",
        ),
        ({"short_monitors": 1}, "1 monitor finds less than expected: `spyweb jobs` says which"),
        ({"short_monitors": 2}, "2 monitors find less than expected: `spyweb jobs` says which"),
        ({"drifting": 1}, "1 job has files that others have changed: `spyweb drift` lists them"),
        ({"drifting": 2}, "2 jobs have files that others have changed: `spyweb drift` lists them"),
        (
            {"pool": replace(POOL, workers=[replace(worker, pid=0) for worker in POOL.workers])},
            "no worker is up, so no script runs: the log says why",
        ),
        (
            {"store": make_stats(commit_s=0.21)},
            "the disk is slow: each commit takes 210ms or longer, and writes wait for it",
        ),
        ({"refused_connections": "the server is full"}, "the server is full"),
        ({"descriptors_left": 63}, "only 63 file descriptors are left: raise LimitNOFILE, or `ulimit -n`"),
        (
            {"pool": replace(POOL, waiting=9, most_own=21)},
            "9 runs wait for a process: at most 21 jobs with `exec` or `isolation` have one at a time, "
            "a third of the file descriptors",
        ),
        (
            {"loop": STALLED, "now_ms": 999 + views.SHOWN_MS},
            "the event loop stalled: `spyweb health` and the log name the cause",
        ),
        ({"held_back": {"prices": "it held up"}}, "1 job has held up the daemon too often: `spyweb health` says which"),
        (
            {"storage_errors": 3, "storage_error_at_ms": 1_000, "now_ms": 999 + views.SHOWN_MS},
            "writes of scripts are refused: `spyweb runs` lists the runs, the log has the reason",
        ),
    ],
)
def test_what_somebody_should_look_at_is_a_warning_and_no_failure(changes: dict[str, object], warning: str) -> None:
    counts = {name: value for name, value in changes.items() if name in ("short_monitors", "drifting")}
    vitals = make_vitals(**{name: value for name, value in changes.items() if name not in counts})
    health = views.view_health(vitals, [], **counts)  # type: ignore[arg-type]
    assert (health.status, health.problems, health.warnings) == ("ok", [], [warning])
    assert views.summarize(health)["warnings"] == [warning]


@pytest.mark.parametrize(
    "changes",
    [
        {"store": make_stats(commit_s=0.1)},
        {"loop": STALLED, "now_ms": 1_000 + views.SHOWN_MS},
        {"storage_errors": 3, "storage_error_at_ms": 1_000, "now_ms": 1_000 + views.SHOWN_MS},
    ],
)
def test_what_is_over_or_usual_is_no_warning(changes: dict[str, object]) -> None:
    assert views.view_health(make_vitals(**changes), []).warnings == []


def test_one_problem_is_enough_to_fail_also_a_full_disk_which_no_restart_would_cure() -> None:
    assert views.view_health(make_vitals(), three_states()).status == "ok"
    health = views.view_health(make_vitals(scheduler_lag_ms=6_500), three_states())
    assert (health.status, health.problems) == ("failing", ["the scheduler is 6.5s behind"])
    vitals = make_vitals(refused_ms=12_000)
    health = views.view_health(vitals, [])
    assert (health.status, health.problems) == ("failing", ["no due run could be claimed for 12s: the log says why"])
    assert views.find_problems(vitals.scheduler_lag_ms, vitals.store) == []
    assert views.view_health(make_vitals(refused_ms=views.SCHEDULER_STALLED_MS), []).status == "ok"


def test_what_holds_the_loop_is_told_by_name_to_the_daemons_own_user_only() -> None:
    health = views.view_health(
        make_vitals(loop=STALLED, now_ms=1_000, held_back={"prices": "it held up the daemon"}), []
    )
    assert health.held_back == {"prices": "it held up the daemon"}
    shown = views.summarize(health)
    assert shown["loop"] == {"stalls": 2, "worst_ms": 2800}
    assert "prices" not in str(shown)


def test_what_keeps_jobs_from_running_is_known_by_the_part_of_the_daemon() -> None:
    assert views.find_parts(make_vitals()) == {}
    vitals = make_vitals(scheduler_lag_ms=6_500, refused_ms=12_000)
    none = [replace(worker, pid=0) for worker in vitals.pool.workers]
    vitals = replace(
        vitals, store=make_stats(failed="the disk is full", stalled_s=11.0), pool=replace(vitals.pool, workers=none)
    )
    assert {part: (each.timeless or each.text, each.lasting_ms) for part, each in views.find_parts(vitals).items()} == {
        "scheduler": ("the scheduler is behind", 6_500),
        "store": ("nothing is stored: the disk is full", 0),
        "disk": ("a write waits for the disk", 11_000),
        "workers": ("no worker is up, so no script runs: the log says why", 0),
    }
    assert views.find_problems(6_500, make_stats()) == ["the scheduler is 6.5s behind"], "as it is at this moment"
    assert views.find_parts(make_vitals(refused_ms=12_000)).keys() == {"store"}


WRONG: dict[str, object] = {
    "scheduler_lag_ms": 60_000,
    "store": make_stats(failed="disk full", stalled_s=60.0),
    "refused_ms": 60_000,
    "dead_messages": 2,
    "server_is_broken": True,
    "descriptors_left": 3,
    "refused_connections": "200 connections were refused: 1,000 are open",
    "loop": LoopStats(stalls=1, worst_ms=900, last_at_ms=NOW_MS),
    "storage_error_at_ms": NOW_MS,
    "held_back": {"prices": "it held up the loop"},
    "now_ms": NOW_MS,
}


def test_there_is_something_to_do_about_each_thing_that_is_wrong() -> None:
    health = views.view_health(make_vitals(**WRONG), [], short_monitors=1)

    assert len(health.advice) >= 11
    assert [each.text for each in health.advice] == [*health.problems, *health.warnings]
    assert [each.remedy for each in health.advice] == [REMEDIES[each.code] for each in health.advice]


@pytest.mark.parametrize(
    ("vitals", "words"),
    [
        ({}, "Jobs run on time"),
        ({"dead_messages": 1}, "Jobs run on time; 1 message never arrived and was given up"),
        ({"dead_messages": 1, "server_is_broken": True}, "Jobs run on time; 2 warnings"),
        ({"scheduler_lag_ms": 60_000}, "The scheduler is 1m behind"),
        ({"scheduler_lag_ms": 60_000, "dead_messages": 1}, "The scheduler is 1m behind, and 1 more"),
    ],
)
def test_one_line_says_whether_jobs_run_on_time(vitals: dict[str, object], words: str) -> None:
    assert views.health_words(views.view_health(make_vitals(**vitals), [])) == words


NOBODY = replace(make_vitals().pool, answering=0)


@pytest.mark.parametrize(
    ("vitals", "stage", "probe", "reason"),
    [
        (make_vitals(), "the daemon is stopping", "", "the daemon is stopping"),
        (make_vitals(), "", "the writer has not answered within 2 s", "the writer has not answered within 2 s"),
        (make_vitals(scheduler_lag_ms=61_000), "", "", "the scheduler is 1m1s behind"),
        (make_vitals(refused_ms=9_000), "", "", "no due run could be claimed for 9s: the log says why"),
        (make_vitals(pool=NOBODY), "", "", "no worker answers"),
        (make_vitals(store=make_stats(failed="data/spyweb.db: full")), "", "x", "nothing is stored: spyweb.db: full"),
    ],
)
def test_each_part_that_makes_no_progress_is_a_reason(
    vitals: views.Vitals, stage: str, probe: str, reason: str
) -> None:
    readiness = views.view_readiness(vitals, stage=stage, probe=probe)
    assert (readiness.ready, readiness.reasons) == (False, [reason])
