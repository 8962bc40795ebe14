"""Whether the daemon makes progress."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.stalls import LoopStats
from spyweb.views.health import (
    OTHERWISE,
    SCHEDULER_STALLED_MS,
    STALLS_SHOWN_MS,
    STORAGE_ERRORS_SHOWN_MS,
    WRITER_STALLED_S,
    Vitals,
    count_states,
    find_parts,
    find_problems,
    health_words,
    summarize,
    view_health,
    view_readiness,
)
from tests.fakes.daemon_service import NOW_MS, make_stats, make_vitals, three_states


@pytest.mark.parametrize(
    ("lag_ms", "waited_s", "count"),
    [
        (0, 0.0, 0),
        (SCHEDULER_STALLED_MS, WRITER_STALLED_S, 0),
        (SCHEDULER_STALLED_MS + 1, 0.0, 1),
        (0, WRITER_STALLED_S + 1, 1),
        (SCHEDULER_STALLED_MS + 1, WRITER_STALLED_S + 1, 2),
    ],
)
def test_a_scheduler_or_writer_that_stands_still_is_a_problem(lag_ms: int, waited_s: float, count: int) -> None:
    problems = find_problems(lag_ms, make_stats(stalled_s=waited_s))
    assert len(problems) == count


def test_that_nothing_can_be_written_is_a_problem_though_nothing_waits() -> None:
    assert find_problems(0, make_stats(failed="out of memory")) == ["nothing is stored: out of memory"]


def test_where_the_database_lies_is_told_to_nobody_who_can_reach_the_port() -> None:
    stats = make_stats(path="/srv/x/spyweb.db", failed="/srv/x/spyweb.db-wal: was removed")
    assert find_problems(0, stats) == ["nothing is stored: spyweb.db-wal: was removed"]


@pytest.mark.parametrize(
    ("count", "warnings"),
    [
        (0, []),
        (1, ["1 message never arrived and was given up: `spyweb outbox` lists them"]),
        (2, ["2 messages never arrived and were given up: `spyweb outbox` lists them"]),
    ],
)
def test_messages_that_were_given_up_are_a_warning_and_no_failure(count: int, warnings: list[str]) -> None:
    health = view_health(make_vitals(dead_messages=count), [])
    assert (health.status, health.problems, health.warnings) == ("ok", [], warnings)
    assert summarize(health)["warnings"] == warnings


def test_channels_that_can_not_tell_are_named() -> None:
    (warning,) = view_health(make_vitals(troubled_channels=("ops", "phone")), []).warnings
    assert warning == "something is wrong with how people are told (ops, phone): `spyweb alerts list` says what"


@pytest.mark.parametrize(
    ("count", "warnings"),
    [
        (0, []),
        (1, ["1 monitor does not find what is expected: `spyweb jobs` says which"]),
        (2, ["2 monitors do not find what is expected: `spyweb jobs` says which"]),
    ],
)
def test_monitors_that_find_nothing_any_more_are_a_warning(count: int, warnings: list[str]) -> None:
    health = view_health(make_vitals(), [], short_monitors=count)
    assert (health.status, health.warnings) == ("ok", warnings)


@pytest.mark.parametrize(("count", "has"), [(0, ""), (1, "1 job has"), (2, "2 jobs have")])
def test_files_that_are_not_as_they_were_left_are_a_warning(count: int, has: str) -> None:
    health = view_health(make_vitals(), [], drifting=count)
    told = [f"{has} files that are not as their runs left them: `spyweb drift` lists them"]
    assert (health.status, health.warnings) == ("ok", told if count else [])


def test_that_no_worker_is_up_is_a_warning_since_one_is_being_started() -> None:
    vitals = make_vitals()
    workers = [replace(worker, pid=0) for worker in vitals.pool.workers]

    health = view_health(replace(vitals, pool=replace(vitals.pool, workers=workers)), [])

    assert (health.status, health.warnings) == ("ok", ["no worker is up, so no script runs: the log says why"])


def test_a_disk_that_takes_long_for_each_commit_is_a_warning() -> None:
    assert view_health(make_vitals(store=make_stats(commit_s=0.1)), []).warnings == []
    health = view_health(make_vitals(store=make_stats(commit_s=0.21)), [])
    slow = "the disk is slow: each commit takes 210ms or longer, and whatever is stored waits for it"
    assert (health.status, health.warnings) == ("ok", [slow])
    (advice,) = health.advice
    assert "faster" in advice.remedy


def test_connections_that_are_refused_and_scarce_descriptors_are_warnings() -> None:
    health = view_health(make_vitals(refused_connections="the server is full", descriptors_left=63), [])
    expected = ["the server is full", "only 63 file descriptors are left: raise LimitNOFILE, or `ulimit -n`"]
    assert (health.status, health.warnings) == ("ok", expected)


def test_runs_that_wait_for_a_process_are_a_warning() -> None:
    vitals = make_vitals()
    health = view_health(replace(vitals, pool=replace(vitals.pool, waiting=9, most_own=21)), [])
    most = "at most 21 jobs with `exec` or `isolation` have one at a time, a third of the file descriptors"
    assert health.warnings == [f"9 runs wait for a process: {most}"]
    (advice,) = health.advice
    assert "LimitNOFILE" in advice.remedy


def test_a_daemon_without_problems_is_ok() -> None:
    assert view_health(make_vitals(), three_states()).status == "ok"


def test_one_problem_is_enough_to_fail() -> None:
    health = view_health(make_vitals(scheduler_lag_ms=6_500), three_states())
    assert (health.status, health.problems) == ("failing", ["the scheduler is 6.5s behind"])


def test_a_full_disk_fails_though_no_restart_would_cure_it() -> None:
    vitals = make_vitals(refused_ms=12_000)
    health = view_health(vitals, [])
    assert (health.status, health.problems) == ("failing", ["no due run could be claimed for 12s: the log says why"])
    assert find_problems(vitals.scheduler_lag_ms, vitals.store) == []
    assert view_health(make_vitals(refused_ms=SCHEDULER_STALLED_MS), []).status == "ok"


def test_jobs_are_counted_in_every_state() -> None:
    assert count_states(three_states()) == {
        "idle": 1,
        "running": 0,
        "waiting": 0,
        "paused": 1,
        "disabled": 0,
        "broken": 1,
    }


def test_the_summary_names_no_job_no_path_and_no_process() -> None:
    text = str(summarize(view_health(make_vitals(pid=4711), three_states())))
    assert not any(word in text for word in ("backup", "prices", "spyweb.db", "4711"))


def test_a_loop_that_stood_is_a_warning_for_ten_minutes() -> None:
    stats = LoopStats(stalls=2, worst_ms=2800, last_at_ms=1_000, last="op state.set of prices, run 7, 2.8 s")
    health = view_health(make_vitals(loop=stats, now_ms=1_000 + STALLS_SHOWN_MS - 1), [])
    assert health.warnings == ["the event loop was held up: `spyweb health` and the log say by what"]
    assert view_health(make_vitals(loop=stats, now_ms=1_000 + STALLS_SHOWN_MS), []).warnings == []


def test_what_holds_the_loop_is_told_by_name_to_the_daemons_own_user_only() -> None:
    stats = LoopStats(stalls=2, worst_ms=2800, last_at_ms=1_000, last="op state.set of prices, run 7, 2.8 s")
    health = view_health(make_vitals(loop=stats, now_ms=1_000, held_back={"prices": "it held up the daemon"}), [])
    assert health.held_back == {"prices": "it held up the daemon"}
    shown = summarize(health)
    assert shown["loop"] == {"stalls": 2, "worst_ms": 2800}
    assert "prices" not in str(shown)
    assert "1 job has held up the daemon too often: `spyweb health` says which" in health.warnings


def test_writes_of_scripts_that_fail_are_a_warning_while_they_do() -> None:
    failing = make_vitals(storage_errors=3, storage_error_at_ms=1_000, now_ms=999 + STORAGE_ERRORS_SHOWN_MS)
    warning = "what scripts store is refused: `spyweb runs` shows of which runs, the log says why"
    assert view_health(failing, []).warnings == [warning]
    over = make_vitals(storage_errors=3, storage_error_at_ms=1_000, now_ms=1_000 + STORAGE_ERRORS_SHOWN_MS)
    assert view_health(over, []).warnings == []


def test_what_keeps_jobs_from_running_is_known_by_the_part_of_the_daemon() -> None:
    assert find_parts(make_vitals()) == {}
    vitals = make_vitals(scheduler_lag_ms=6_500, refused_ms=12_000)
    none = [replace(worker, pid=0) for worker in vitals.pool.workers]
    vitals = replace(
        vitals,
        store=make_stats(failed="the disk is full", stalled_s=11.0),
        pool=replace(vitals.pool, workers=none),
    )
    assert {part: (each.timeless or each.text, each.lasting_ms) for part, each in find_parts(vitals).items()} == {
        "scheduler": ("the scheduler is behind", 6_500),
        "store": ("nothing is stored: the disk is full", 0),
        "disk": ("a write waits for the disk", 11_000),
        "workers": ("no worker is up, so no script runs: the log says why", 0),
    }
    assert find_problems(6_500, make_stats()) == ["the scheduler is 6.5s behind"], "as it is at this moment"
    assert find_parts(make_vitals(refused_ms=12_000)).keys() == {"store"}


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
    health = view_health(make_vitals(**WRONG), [], short_monitors=1)

    assert len(health.advice) >= 11
    assert [each.text for each in health.advice] == [*health.problems, *health.warnings]
    assert [each.code for each in health.advice if each.remedy == OTHERWISE] == []


@pytest.mark.parametrize(
    ("vitals", "words"),
    [
        ({}, "Jobs run on time; all is well"),
        ({"dead_messages": 1}, "Jobs run on time; 1 message never arrived and was given up"),
        ({"dead_messages": 1, "server_is_broken": True}, "Jobs run on time; 2 things to look at"),
        ({"scheduler_lag_ms": 60_000}, "The scheduler is 1m behind"),
        ({"scheduler_lag_ms": 60_000, "dead_messages": 1}, "The scheduler is 1m behind, and 1 more"),
    ],
)
def test_one_line_says_whether_jobs_run_on_time(vitals: dict[str, object], words: str) -> None:
    assert health_words(view_health(make_vitals(**vitals), [])) == words


NOBODY = replace(make_vitals().pool, answering=0)


def test_a_daemon_whose_parts_make_progress_is_ready() -> None:
    readiness = view_readiness(make_vitals(), stage="", probe="")
    assert (readiness.ready, readiness.reasons) == (True, [])


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
def test_each_part_that_makes_no_progress_is_a_reason(vitals: Vitals, stage: str, probe: str, reason: str) -> None:
    readiness = view_readiness(vitals, stage=stage, probe=probe)
    assert (readiness.ready, readiness.reasons) == (False, [reason])
