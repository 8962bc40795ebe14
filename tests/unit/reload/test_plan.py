from __future__ import annotations

from dataclasses import replace

from spyweb.jobs.discover import JobFile
from spyweb.jobs.live import LiveJobs
from spyweb.model import Every, Isolation, JobId
from spyweb.reload.plan import Plan, plan
from tests.fakes.town import make_job, make_spec

PRICES = JobId("prices")


def file(digest: str = "1", **settings: object) -> JobFile:
    return JobFile(spec=make_spec("prices", **settings), source=b"return 1", digest=digest)


def compare(*files: JobFile, broken: tuple[JobId, ...] = (), stale: tuple[JobId, ...] = ()) -> Plan:
    live = LiveJobs()
    live.add(make_job("prices"))
    return plan(live, {each.spec.id: each for each in files}, broken, stale)


def test_the_same_file_is_the_same_job() -> None:
    assert [job.id for job in compare(file()).same] == [PRICES]


def test_another_source_needs_a_fresh_vm() -> None:
    assert [job.id for job, _ in compare(file("2")).recoded] == [PRICES]


def test_a_changed_module_needs_a_fresh_vm() -> None:
    assert [job.id for job, _ in compare(file(), stale=(PRICES,)).recoded] == [PRICES]


def test_what_a_vm_is_made_with_needs_a_fresh_one() -> None:
    for settings in ({"memory_limit": 1 << 20}, {"isolation": Isolation.PROCESS}):
        assert [job.id for job, _ in compare(file(**settings)).recoded] == [PRICES]


def test_other_settings_keep_the_vm() -> None:
    assert [job.id for job, _ in compare(file(schedule=Every(period_ms=1000))).respecified] == [PRICES]


def test_no_file_is_gone_and_a_broken_one_is_not() -> None:
    assert [job.id for job in compare().gone] == [PRICES]
    assert compare(broken=(PRICES,)).gone == []


def test_an_unknown_file_is_new() -> None:
    other = replace(file(), spec=make_spec("report"))
    assert [found.spec.id for found in compare(file(), other).new] == ["report"]
