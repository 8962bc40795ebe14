from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from spyweb import __version__
from spyweb.daemon.banner import JOBS_SHOWN, describe_start, note_of
from spyweb.errors import Problem
from spyweb.views.jobs import JobView, view_job
from tests.fakes.clock import START_MS
from tests.fakes.harness import make_spec


def due(name: str, after_ms: int | None = None, **spec: object) -> JobView:
    return replace(view_job(make_spec(name, **spec)), next_due_ms=None if after_ms is None else START_MS + after_ms)


def shown(*jobs: JobView, problems: Sequence[Problem] = (), colour: bool = False) -> list[str]:
    facts = {"project": "/srv/watch", "server": "off", "dashboard": ""}
    return describe_start(facts, jobs, problems, zone="Europe/Berlin", colour=colour)


def test_it_says_what_was_found_soonest_run_first() -> None:
    assert shown(due("nightly", 10_800_000), due("prices", 0), due("off", enabled=False)) == [
        f"spyweb {__version__}",
        "  project    /srv/watch",
        "  server     off",
        "",
        "3 jobs:",
        "  prices   every 1m  next 2026-01-01 01:00:00 Europe/Berlin",
        "  nightly  every 1m  next 2026-01-01 04:00:00 Europe/Berlin",
        "  off      every 1m  nothing due  (disabled)",
    ]


def test_no_jobs_says_where_to_drop_a_file() -> None:
    assert shown()[-1].startswith("no jobs yet: put a Lua file into jobs/")


def test_problems_come_last_each_on_its_line() -> None:
    problem = Problem("jobs/a.lua", 2, "every", "expected a duration")
    assert shown(problems=[problem])[-2:] == ["1 problem:", "  jobs/a.lua:2: every: expected a duration"]


def test_of_many_jobs_the_soonest_are_shown() -> None:
    said = shown(*(due(f"job{n:03}", n) for n in range(100)))
    assert said[-1] == f"  … and {100 - JOBS_SHOWN} more: spyweb jobs"
    assert "job000" in said[-JOBS_SHOWN - 1]


def test_colour_is_only_there_when_asked_for_and_a_name_sends_nothing_to_the_terminal() -> None:
    evil = due("x\x1b[2J")
    assert not any("\x1b" in line for line in shown(evil))
    assert shown(evil, colour=True)[0] == f"\x1b[1mspyweb {__version__}\x1b[0m"


def test_a_job_whose_file_is_broken_says_that_its_old_version_runs() -> None:
    assert "does not load" in note_of(replace(view_job(make_spec()), error="jobs/prices.lua:1: no"))
    assert note_of(view_job(make_spec())) == ""
