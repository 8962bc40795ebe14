from __future__ import annotations

from spyweb.daemon.report import describe_limits, limits_of, note_of
from spyweb.model import MIB
from spyweb.views.jobs import JobFacts, view_job
from tests.fakes.town import make_spec


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
