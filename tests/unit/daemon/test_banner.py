from __future__ import annotations

from msgspec.structs import replace

from spyweb.daemon.banner import JOBS_SHOWN, JobLine, StartReport, describe_limits, describe_start, limits_of, note_of
from spyweb.model import MIB
from spyweb.views.jobs import JobFacts, view_job
from tests.fakes.clock import START_MS
from tests.fakes.harness import make_spec

REPORT = StartReport(
    version="0.1.0",
    project="/srv/watch",
    data_dir="/srv/watch/data",
    durability="full",
    server="http://127.0.0.1:7979",
    dashboard="http://127.0.0.1:7979/",
    workers=2,
    limits="64MB, 10s CPU, 5m",
    rights=("seccomp", "landlock"),
    jobs=(
        JobLine(id="nightly", schedule="cron 0 3 * * *", next_ms=START_MS + 10_800_000, timezone="Europe/Berlin"),
        JobLine(id="prices", schedule="every 30s", next_ms=START_MS),
        JobLine(id="by_hand", schedule="never", note="paused"),
    ),
)


def test_it_says_what_was_found_soonest_run_first() -> None:
    assert describe_start(REPORT) == [
        "spyweb 0.1.0",
        "  project    /srv/watch",
        "  data       /srv/watch/data (durability full)",
        "  server     http://127.0.0.1:7979",
        "  dashboard  http://127.0.0.1:7979/",
        "  workers    2",
        "  limits     64MB, 10s CPU, 5m",
        "  sandbox    seccomp; landlock",
        "",
        "3 jobs:",
        "  prices   every 30s       next 2026-01-01 00:00:00 UTC",
        "  nightly  cron 0 3 * * *  next 2026-01-01 04:00:00 Europe/Berlin",
        "  by_hand  never           nothing due  (paused)",
    ]


def test_no_jobs_says_where_to_drop_a_file() -> None:
    assert describe_start(replace(REPORT, jobs=()))[-1].startswith("no jobs yet: put a Lua file into jobs/")


def test_problems_come_last_each_on_its_line() -> None:
    said = describe_start(replace(REPORT, problems=("jobs/a.lua:2: every: expected a duration",)))
    assert said[-2:] == ["1 problem:", "  jobs/a.lua:2: every: expected a duration"]


def test_of_many_jobs_the_soonest_are_shown() -> None:
    many = tuple(JobLine(id=f"job{n:03}", schedule="every 1m", next_ms=START_MS + n) for n in range(100))
    said = describe_start(replace(REPORT, jobs=many))
    assert said[-1] == f"  … and {100 - JOBS_SHOWN} more: spyweb jobs"
    assert "job000" in said[-JOBS_SHOWN - 1]


def test_without_server_or_sandbox_it_says_so() -> None:
    said = describe_start(replace(REPORT, server=None, rights=()))
    assert "  server     off" in said
    assert "  sandbox    none: scripts run with this user's rights" in said


def test_colour_is_only_there_when_asked_for() -> None:
    assert not any("\x1b" in line for line in describe_start(REPORT))
    assert "\x1b[1mspyweb 0.1.0\x1b[0m" in describe_start(REPORT, colour=True)


def test_a_job_can_not_send_anything_to_the_terminal_by_its_name() -> None:
    evil = (JobLine(id="x\x1b[2J", schedule="never"),)
    assert not any("\x1b" in line for line in describe_start(replace(REPORT, jobs=evil)))


def test_the_limits_of_most_jobs_come_first() -> None:
    jobs = [make_spec("a", memory_limit=8 * MIB), make_spec("b"), make_spec("c")]
    assert describe_limits(jobs) == f"{limits_of(make_spec())}; or 8MB a VM, 10s CPU and 5m a run"


def test_many_kinds_of_limits_are_cut_short() -> None:
    jobs = [make_spec(f"job{size}", memory_limit=size * MIB) for size in range(1, 9)]
    assert describe_limits(jobs).endswith("; and others")


def test_without_jobs_the_defaults_are_shown() -> None:
    assert describe_limits([]) == "64MB a VM, 10s CPU and 5m a run"


def test_a_job_whose_file_is_broken_says_that_its_old_version_runs() -> None:
    assert "does not load" in note_of(view_job(make_spec(), JobFacts(error="jobs/prices.lua:1: no")))
    assert note_of(view_job(make_spec(enabled=False), JobFacts())) == "disabled"
    assert note_of(view_job(make_spec(), JobFacts())) == ""
