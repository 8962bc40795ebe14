"""Each command, with a daemon's socket behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec import convert
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.model import Failure, JobId, Outcome, RunId, Trigger
from spyweb.subjects.health.views import ChoreHealth
from spyweb.subjects.jobs.views import JobDetail
from spyweb.views.runs import LogLine, RunEnded, RunEvent, last_run
from tests.fakes.command import Answer, spyweb
from tests.fakes.daemon_service import NOW_MS, PRICES, FakeDaemonService, make_run, make_vitals, refused
from tests.fakes.daemon_socket import serve_daemon_socket

Project = tuple[Path, FakeDaemonService]


@contextmanager
def project_of(root: Path, service: FakeDaemonService) -> Iterator[Path]:
    (root / "data").mkdir(mode=0o700)
    (root / "config.toml").write_text('[daemon]\ntimezone = "Europe/Berlin"\n')
    with serve_daemon_socket(service, root / "data"):
        yield root


@pytest.fixture
def online(tmp_path: Path) -> Iterator[Project]:
    service = FakeDaemonService(root=tmp_path)
    with project_of(tmp_path, service) as root:
        yield root, service


def with_service(service: FakeDaemonService, root: Path, *words: str) -> Answer:
    with project_of(root, service):
        return spyweb(*words, root=root)


def test_jobs_show_state_schedule_last_run_and_error(online: Project) -> None:
    answer = spyweb("jobs", root=online[0])
    rows = {cells[0]: cells[1:] for cells in answer.table}
    assert answer.code == 0
    assert rows["backup"][:2] == ["paused", "cron 0 3 * * *"]
    assert rows["backup"][2].startswith("failed, ")
    assert rows["backup"][-1] == "jobs/backup.lua:3: disk"
    assert rows["prices"][:2] == ["idle", "every 30s"]
    assert "1.234s" in rows["prices"]
    assert rows["typo"] == ["broken", "jobs/typo.lua:1: unexpected symbol near 'x'"]
    assert answer.err == "warning: jobs/prices.lua:3: undefined name htp_get\n"


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--failing"], ["backup", "prices"]),
        (["--state", "failing"], ["prices"]),
        (["--state", "idle"], []),
        (["--state", "paused"], ["backup"]),
        (["--tag", "money"], ["prices"]),
        (["--tag", "money", "--state", "broken"], []),
    ],
)
def test_jobs_are_listed_by_their_state_and_tag(
    words: list[str], ids: list[str], online: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, service = online
    failed = last_run(make_run(outcome=Outcome.FAILED))
    views = [replace(view, last=failed, tags=("money",)) if view.id == PRICES else view for view in service.jobs()]
    monkeypatch.setattr(service, "jobs", lambda: views)
    answer = spyweb("jobs", *words, root=root)
    assert [row[0] for row in answer.table] == ids
    assert answer.err == ("" if ids else "no job matches\n")
    assert [job["id"] for job in spyweb("jobs", *words, "-o", "json", root=root).json] == ids


def test_jobs_as_json_are_what_the_api_gives(online: Project) -> None:
    jobs = spyweb("jobs", "-o", "json", root=online[0]).json
    assert [(job["id"], job["generation"]) for job in jobs] == [("backup", 4), ("prices", 1), ("typo", 0)]


def test_a_job_is_shown_as_on_its_page(online: Project) -> None:
    answer = spyweb("show", "prices", "-n", "2", root=online[0])
    assert answer.code == 0
    facts = {line[:14].strip(): line[14:] for line in answer.lines if not line.startswith(" ")}
    assert facts["job"] == "prices"
    assert {"state", "schedule", "next", "last run", "starts after", "file"} <= facts.keys()
    assert ["setting", "value", "from"] in [line.split() for line in answer.lines]
    assert [row[0] for row in answer.table[-2:]] == ["3", "1"]
    detail = spyweb("show", "prices", "-o", "json", root=online[0]).json
    assert (detail["job"]["row"]["job"]["id"], detail["incidents"]) == ("prices", [])
    error = {"run": 4, "at_ms": 0, "reason": "x", "failure": None, "frames": [{"text": "in f"}], "source": None}
    failing = convert({**detail["job"], "error": error}, JobDetail)
    online[1].details.detail = AsyncMock(return_value=failing)  # type: ignore[method-assign]
    assert "last error, run 4:\n  x\n  in f\n" in spyweb("show", "prices", root=online[0]).out


def test_a_job_that_does_not_load_is_shown_with_its_problem(online: Project) -> None:
    answer = spyweb("show", "typo", root=online[0])
    assert (answer.code, answer.err.splitlines()[-1]) == (0, "no runs yet")
    assert "state         broken\n" in answer.out


def test_runs_show_what_ran_and_what_did_not_and_why(online: Project) -> None:
    rows = spyweb("runs", root=online[0]).table
    assert rows == [
        [
            "3", "prices", "Thu 2026-01-01 00:59:00 CET", "schedule",
            "missed: the daemon was down (7 due times, the last Thu 2026-01-01 01:00:00 CET)",
        ],
        [
            "2", "backup", "Thu 2026-01-01 00:59:00 CET", "1.234s", "schedule",
            "failed: jobs/backup.lua:3: disk",
        ],
        ["1", "prices", "Thu 2026-01-01 00:59:00 CET", "1.234s", "schedule", "success"],
    ]  # fmt: skip


def test_runs_are_chosen_by_job_and_outcome_and_count(online: Project) -> None:
    def ids(*words: str) -> list[int]:
        found = spyweb("runs", "-o", "json", *words, root=online[0]).json
        return [run["id"] for run in found]

    assert ids("-n", "2") == [3, 2]
    assert ids("Backup") == [2]
    assert ids("--outcome", "success") == [1]
    assert ids("backup", "--outcome", "success") == []


def test_a_job_that_is_gone_keeps_its_history(tmp_path: Path) -> None:
    known = [make_run(n, job=JobId("gone")) for n in range(1_500, 0, -1)]
    answer = with_service(FakeDaemonService(known_runs=known), tmp_path, "runs", "gone", "-n", "2000", "-o", "json")
    assert len(answer.json) == 1_500


@pytest.mark.parametrize("chosen", [["--outcome", "failed"], ["--trigger", "alert"]])
def test_what_is_rare_is_looked_for_beyond_the_first_page(tmp_path: Path, chosen: list[str]) -> None:
    many = [make_run(n) for n in range(2_500, 0, -1)]
    many[-7] = make_run(7, outcome=Outcome.FAILED, trigger=Trigger(type="alert"))
    answer = with_service(FakeDaemonService(known_runs=many), tmp_path, "runs", *chosen, "-o", "json")
    assert [run["id"] for run in answer.json] == [7]


def test_next_shows_local_time_with_its_zone(online: Project) -> None:
    rows = spyweb("next", "prices", "-n", "2", root=online[0]).table
    assert [(row[0], row[-1]) for row in rows] == [
        ("Thu 2026-01-01 01:00:30 CET", "prices"),
        ("Thu 2026-01-01 01:01:00 CET", "prices"),
    ]


def test_trigger_says_which_run_starts(online: Project) -> None:
    line = "run 9 of prices starts: `spyweb logs prices -f` follows it, `spyweb runs prices` shows its end\n"
    assert spyweb("trigger", "prices", root=online[0]) == Answer(0, line, "")
    assert spyweb("trigger", "prices", "-o", "json", root=online[0]).json == {"run": 9}


def test_a_refused_trigger_is_one_line(tmp_path: Path) -> None:
    answer = with_service(FakeDaemonService(refusal=refused()), tmp_path, "trigger", "prices")
    assert answer == Answer(2, "", "spyweb: prices is running\n")


def test_pause_and_resume_say_what_they_changed_and_until_when(online: Project) -> None:
    root, service = online
    due = "next due now, Thu 2026-01-01 01:00:30 CET"  # by the clock of the fake daemon
    assert spyweb("pause", "Backup", root=root).out == "backup is paused until `spyweb resume backup`\n"
    assert spyweb("pause", "backup", root=root).out == "backup was paused already\n"
    assert spyweb("resume", "backup", root=root).out == f"backup is resumed: {due}\n"
    assert spyweb("resume", "backup", root=root).out == f"backup was not paused: {due}\n"
    shown = spyweb("pause", "backup", "-o", "json", root=root).json
    assert shown == {"job": "backup", "paused": True, "was_paused": False, "next_due_ms": None}
    assert service.story == ["pause backup", "pause backup", "resume backup", "resume backup", "pause backup"]


@pytest.mark.parametrize(
    "words", [["trigger"], ["pause"], ["resume"], ["run"], ["debug"], ["logs"], ["runs"], ["next"]]
)
def test_an_unknown_job_is_told_with_its_nearest(online: Project, words: list[str]) -> None:
    answer = spyweb(*words, "prises", root=online[0])
    assert answer == Answer(2, "", "spyweb: no job is named 'prises': did you mean 'prices'?\n")


def test_logs_are_read_where_the_script_wrote_them(online: Project) -> None:
    root, service = online
    assert spyweb("logs", "prices", root=root) == Answer(0, "", "prices has not logged anything yet\n")
    service.log_file(PRICES).parent.mkdir(parents=True)
    service.log_file(PRICES).write_text("one\ntwo\nthree\n")
    assert spyweb("logs", "prices", "-n", "2", root=root).out == "two\nthree\n"
    assert spyweb("logs", "prices", "-n", "1", "-o", "json", root=root).json == ["three"]


def test_logs_say_what_the_script_could_not(online: Project) -> None:
    answer = spyweb("logs", "backup", "-n", "1", root=online[0])
    failed = "its latest run (2) failed: jobs/backup.lua:3: disk: see `spyweb runs backup`\n"
    assert answer == Answer(0, "", f"backup has not logged anything yet\n{failed}")
    broken = spyweb("logs", "typo", root=online[0])
    assert broken.err.endswith("its file does not load: jobs/typo.lua:1: unexpected symbol near 'x'\n")


def test_logs_of_a_job_elsewhere_tell_its_latest_run_as_its_own_node_knows_it(
    online: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, service = online
    detail = convert(spyweb("show", "prices", "-o", "json", root=root).json["job"], JobDetail)
    older = replace(detail.row.job, node="ber")
    newer = replace(older, last=last_run(make_run(11, outcome=Outcome.FAILED, reason="no")))
    monkeypatch.setattr(service, "jobs", lambda: [older])
    owner = AsyncMock(return_value=replace(detail, row=replace(detail.row, job=newer)))
    service.details.detail = owner  # type: ignore[method-assign]
    assert "its latest run (11) failed: no: see" in spyweb("logs", "prices", root=root).err


# -- a run ----------------------------------------------------------------------------------------------------

FAILED = RunEnded(
    job=PRICES,
    run=RunId(9),
    outcome=Outcome.FAILED,
    failure=Failure.ERROR,
    reason="jobs/prices.lua:3: no",
    traceback="stack traceback:\n\tjobs/prices.lua:3: in function 'run'",
    duration_ms=40,
    cpu_ms=7,
    generation=2,
)


def test_run_shows_the_log_the_result_and_the_time(online: Project) -> None:
    answer = spyweb("run", "prices", root=online[0])
    assert answer.code == 0
    assert [line.split(" ", 1)[1] for line in answer.lines[:2]] == ["INFO 3 prices", "INFO größer"]
    assert answer.lines[2:] == ['returned ["a",1]', "success prices in 12ms"]


def test_a_failed_run_shows_its_traceback_and_exits_1(tmp_path: Path) -> None:
    answer = with_service(FakeDaemonService(events=[FAILED]), tmp_path, "run", "prices")
    assert answer.code == 1
    assert answer.lines == [
        "jobs/prices.lua:3: no",
        "stack traceback:",
        "\tjobs/prices.lua:3: in function 'run'",
        "failed prices (error) in 40ms",
    ]


def test_run_as_json_is_one_event_a_line(online: Project) -> None:
    lines = [json.loads(line) for line in spyweb("run", "prices", "-o", "json", root=online[0]).lines]
    assert [line["event"] for line in lines] == ["log", "log", "ended"]
    assert lines[-1]["outcome"] == "success"


def test_debug_shows_when_within_the_run_and_all_that_is_known(tmp_path: Path) -> None:
    events: list[RunEvent] = [
        LogLine(level="info", text=text, at_ms=NOW_MS + at) for text, at in (("a", 0), ("b", 1_500))
    ]
    answer = with_service(FakeDaemonService(events=[*events, FAILED]), tmp_path, "debug", "prices")
    assert answer.code == 1
    assert answer.lines[:2] == ["+   0.000s INFO a", "+   1.500s INFO b"]
    assert dict(line.split(maxsplit=1) for line in answer.lines[-6:]) == {
        "run": "9",
        "took": "40ms",
        "CPU": "7ms",
        "generation": "2",
        "reason": "jobs/prices.lua:3: no",
        "globals": "kept",
    }


# -- health ---------------------------------------------------------------------------------------------------


def test_health_shows_what_the_daemon_measures_of_itself(online: Project) -> None:
    answer = spyweb("health", root=online[0])
    assert answer.code == 0
    assert answer.lines[0] == "ok"
    fields = dict(line.split(maxsplit=1) for line in answer.lines[1:])
    assert fields["jobs"] == "1 idle, 1 paused, 1 broken"
    assert fields["quarantined"] == "backup: it crashed"
    assert fields["sandbox"] == "no files, no network"


def test_health_shows_what_the_daemon_does_every_so_often(tmp_path: Path) -> None:
    now_ms = RealClock().now_ms()
    done = ChoreHealth(
        name="sweep",
        every_s=300.0,
        last_at_ms=now_ms - 65_500,
        last_took_ms=12,
        next_at_ms=now_ms + 3_600_000,
        error="the disk is full",
    )
    chores = [done, ChoreHealth(name="prune", every_s=600.0)]
    answer = with_service(FakeDaemonService(vitals=make_vitals(chores=chores)), tmp_path, "health")
    told = [line.split(maxsplit=1)[1] for line in answer.lines if line.startswith("chore")]
    assert re.fullmatch(
        r"sweep: every 5m; the last 1m\d+s ago took 12 ms; next in 59m\d+s; failed: the disk is full", told[0]
    )
    assert told[1] == "prune: every 10m"


def test_a_daemon_that_stands_still_exits_1(tmp_path: Path) -> None:
    answer = with_service(FakeDaemonService(vitals=make_vitals(scheduler_lag_ms=60_000)), tmp_path, "health")
    assert (answer.code, answer.lines[0]) == (1, "failing the scheduler is 1m behind")
