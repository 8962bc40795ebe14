from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.errors import Problem
from spyweb.model import Every, Field, Isolation, JobId, Monitor
from spyweb.permissions.policy import Grants, policy_of
from spyweb.reload.plan import Plan, not_loaded, plan, whose
from spyweb.runs.live import LiveJobs
from spyweb.specs.discover import Scan
from spyweb.specs.parse import JobFile
from tests.fakes.growth import LINEAR, growth
from tests.fakes.harness import make_job, make_spec

PRICES = JobId("prices")
WATCH = Monitor(urls=("https://example.com",), selector="li", fields=(Field(name="t", selector=""),))


def file(digest: str = "1", **settings: object) -> JobFile:
    return JobFile(spec=make_spec("prices", **settings), lua=(("jobs/prices.lua", b"return 1"),), digest=digest)


def compare(*files: JobFile, broken: tuple[JobId, ...] = (), stale: tuple[JobId, ...] = ()) -> Plan:
    live = LiveJobs()
    live.add(make_job("prices"))
    return plan(live, {each.spec.id: each for each in files}, broken, stale)


@pytest.mark.parametrize(
    ("digest", "settings", "stale", "what"),
    [
        ("1", {}, (), ""),
        ("2", {}, (), "recoded"),
        ("1", {}, (PRICES,), "recoded"),  # a module of it
        ("1", {"memory_limit": 1 << 20}, (), "recoded"),
        ("1", {"isolation": Isolation.PROCESS}, (), "recoded"),
        ("1", {"policy": policy_of(Grants(env=frozenset()))}, (), "recoded"),
        ("1", {"policy": policy_of(Grants(db=False))}, (), "respecified"),
        ("1", {"schedule": Every(period_ms=1000)}, (), "respecified"),
    ],
)
def test_what_a_vm_is_made_of_needs_a_fresh_one_and_other_settings_keep_it(
    digest: str, settings: dict[str, object], stale: tuple[JobId, ...], what: str
) -> None:
    found = compare(file(digest, **settings), stale=stale)
    assert {name for name in ("recoded", "respecified") if getattr(found, name)} == {what} - {""}


def test_no_file_is_gone_and_a_broken_one_is_not() -> None:
    assert [job.id for job in compare().gone] == [PRICES]
    assert compare(broken=(PRICES,)).gone == []


def monitor_file(digest: str = "1", source: bytes = b"x = 1", **settings: object) -> JobFile:
    spec = make_spec("prices", monitor=WATCH, **settings)
    return JobFile(spec=spec, lua=(("jobs/prices/hooks.lua", source),) if source else (), digest=digest)


def compare_monitor(file: JobFile, **live: object) -> Plan:
    jobs = LiveJobs()
    jobs.add(make_job("prices", monitor=WATCH, **live))
    return plan(jobs, {file.spec.id: file}, (), ())


def test_only_enabled_monitors_with_lua_are_executed() -> None:
    for found, count in ((monitor_file("2"), 1), (monitor_file("2", enabled=False), 0), (monitor_file("2", b""), 0)):
        assert len(compare_monitor(found).executing().files()) == count
    assert not compare(file("2")).executing().files()


def test_a_part_of_a_plan_leaves_the_others_as_they_are() -> None:
    whole = compare(file("2"), replace(file(), spec=make_spec("report")))
    part = whole.without([PRICES])

    assert ([found.spec.id for found in part.new], part.recoded) == (["report"], [])
    assert part.without([JobId("report")]).is_empty


def found(broken: dict[str, str], unsure: tuple[str, ...] = (), jobs: tuple[str, ...] = ()) -> Scan:
    problems = {path: [Problem(path, None, None, "is wrong")] for path in (*broken.values(), *unsure)}
    return Scan(
        jobs={JobId(name): replace(file(), spec=make_spec(name)) for name in jobs},
        broken={JobId(name): problems[path] for name, path in broken.items()},
        unsure={path: problems[path] for path in unsure},
        problems=[],
        warnings=[],
    )


NAMELESS, HERE = {"p": "jobs/p/init.lua"}, ("jobs/p/init.lua",)


@pytest.mark.parametrize(
    ("scan", "whose_it_is"),
    [
        (found(NAMELESS, HERE), ["prices"]),  # the job that came from the file
        *((found({}, (folder,)), ["prices"]) for folder in ("jobs/", "jobs/p", "jobs/p/")),  # can't be read
        (found({}, ("jobs/q", "jobs/pp")), []),
        (found(NAMELESS, HERE, jobs=("prices",)), ["p"]),  # that job is in order elsewhere
        (found({"other": "jobs/other.lua"}, ("jobs/other.lua",)), ["other"]),
    ],
)
def test_a_broken_file_is_that_of_the_job_that_came_from_it(scan: Scan, whose_it_is: list[str]) -> None:
    assert sorted(whose([make_job("prices", path="jobs/p/init.lua")], scan)) == whose_it_is


def test_what_is_broken_is_not_loaded_unless_an_older_version_of_it_lives() -> None:
    live = LiveJobs()
    live.add(make_job("prices", path="jobs/p/init.lua"))

    assert not_loaded(live, [PRICES], ["jobs/p/init.lua", "jobs/"]) == frozenset()
    assert not_loaded(live, [JobId("other")], ["jobs/other.lua"]) == {"other", "jobs/other.lua"}


def test_whose_a_broken_file_is_costs_no_more_than_the_number_of_jobs() -> None:
    def many(count: int) -> tuple[LiveJobs, Scan]:
        live = LiveJobs()
        for n in range(count):
            live.add(make_job(f"j{n}", path=f"jobs/j{n}.lua"))
        return live, found({f"k{n}": f"jobs/k{n}.lua" for n in range(count)}, tuple(f"jobs/j{n}" for n in range(count)))

    def look(seen: tuple[LiveJobs, Scan]) -> None:
        live, scan = seen
        not_loaded(live, whose(live, scan), scan.unsure)

    assert growth(look, many, 100) < LINEAR
