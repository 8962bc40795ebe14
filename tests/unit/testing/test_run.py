"""Suites on a pool without Lua: which tests are called, in what order, and what becomes of how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from spyweb.errors import PoolError, Refused, ScriptError
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Lineage, Request
from spyweb.model import Ending, Failure, Isolation, JobId, Outcome, RunId
from spyweb.ops.world import JobLog
from spyweb.settings.load import load_settings
from spyweb.specs.discover import scan
from spyweb.testing.results import CaseResult
from spyweb.testing.run import AT_ONCE, TRIES, FoundSuites, Suite, SuiteEnvironment, SuiteRunner, ctx_for, find_suites
from tests.fakes.clock import FakeClock
from tests.fakes.pool import GUILTY, LOST, SUCCESS
from tests.fakes.rights import bound_by_file_modes, needs_linux

Play = Callable[[str, Request], Ending]
FAILED = Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="a.lua:1: no", traceback="stack traceback:")


def suite(title: str = "shop", **changes: object) -> Suite:
    code = Code(job=JobId(title), generation=1, chunk=f"jobs/{title}.lua", source=b"x += 1")
    return Suite(title=title, job=JobId(title), folder=f"jobs/{title}", code=code, finding=code, **changes)  # type: ignore[arg-type]


@dataclass
class FakeTestPool:
    """Each suite has the tests of its title; `play` says how one ends."""

    tests: Mapping[str, Sequence[bytes]]
    play: Play = lambda name, request: SUCCESS
    complaint: Exception | None = None
    story: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    running: int = 0
    most: int = 0
    ids: int = 0

    def new_id(self) -> RunId:
        self.ids += 1
        return RunId(self.ids)

    async def check(self, code: Code) -> None:
        if self.complaint:
            raise self.complaint

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        self.requests.append(request)
        if request.procedure == "tests":
            found = self.play("", request)
            if found.outcome is not Outcome.SUCCESS:
                return found
            return Ending(outcome=Outcome.SUCCESS, result=list(self.tests[request.code.job]))
        name = request.arguments[0]
        assert isinstance(name, bytes)
        self.story.append(f"{request.code.job} {name.decode()}")
        host.log("info", b"heard")
        return self.play(name.decode(), request)

    def keep_spares(self, code: Code, count: int) -> None:
        self.story.append(f"{code.job} spares {count}")

    def retire(self, job: JobId, older_than: int) -> None:
        self.story.append(f"{job} retired")


@dataclass
class Logging:
    """A Host that no op is asked of."""

    log: JobLog

    def end_branch(self, lineage: Lineage) -> None: ...

    async def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Sequence[object]:
        raise AssertionError(name)


class PlainEnvironment:
    options: Mapping[str, object] = {"virtual_time": True}

    @asynccontextmanager
    async def host(self, run: RunId, log: JobLog) -> AsyncIterator[Host]:
        yield Logging(log)


@dataclass
class Progress:
    counts: dict[str, int] = field(default_factory=dict)
    seen: list[CaseResult] = field(default_factory=list)

    def found(self, suite: str, tests: int) -> None:
        self.counts[suite] = tests

    def ended(self, result: CaseResult) -> None:
        self.seen.append(result)


@asynccontextmanager
async def plain_environment(suite: Suite) -> AsyncIterator[SuiteEnvironment]:
    yield PlainEnvironment()


def runner(
    pool: FakeTestPool,
    progress: Progress,
    open_environment: Callable[[Suite], AbstractAsyncContextManager[SuiteEnvironment]],
) -> SuiteRunner:
    return SuiteRunner(pool=cast("Pool", pool), clock=FakeClock(), open_environment=open_environment, progress=progress)


async def run(
    pool: FakeTestPool, *suites: Suite, pattern: str = "", progress: Progress | None = None
) -> list[CaseResult]:
    return await runner(pool, progress or Progress(), plain_environment).run(suites, pattern)


async def test_the_tests_of_a_suite_run_one_after_the_other_in_their_order() -> None:
    pool = FakeTestPool({"shop": [b"test_a", b"test_b", b"test_c"]})
    results = await run(pool, suite())
    assert pool.story == ["shop spares 2", "shop test_a", "shop test_b", "shop test_c", "shop retired"]
    assert [(result.test, result.passed) for result in results] == [(f"test_{each}", True) for each in "abc"]
    assert pool.most == 1


async def test_suites_run_side_by_side_but_not_too_many() -> None:
    titles = [f"job{number}" for number in range(AT_ONCE + 5)]
    pool = FakeTestPool({title: [b"test_a"] for title in titles})
    results = await run(pool, *map(suite, titles))
    assert [result.suite for result in results] == titles
    assert pool.most == AT_ONCE


async def test_only_tests_with_the_pattern_in_their_name_run() -> None:
    pool, progress = FakeTestPool({"shop": [b"test_price", b"test_title"]}), Progress()
    results = await run(pool, suite(), pattern="pri", progress=progress)
    assert [result.test for result in results] == ["test_price"]
    assert progress.counts == {"shop": 1}


async def test_a_failed_test_says_why_and_what_it_logged_and_the_next_one_runs() -> None:
    pool = FakeTestPool({"shop": [b"test_a", b"test_b"]}, play=lambda name, _: FAILED if name == "test_a" else SUCCESS)
    progress = Progress()

    first, second = await run(pool, suite(), progress=progress)

    assert (first.passed, first.reason, first.traceback) == (False, "a.lua:1: no", "stack traceback:")
    assert [line.text for line in first.output] == ["heard"]
    assert second.passed
    assert progress.seen == [first, second]


async def test_files_that_do_not_load_are_one_failure() -> None:
    pool = FakeTestPool({"shop": [b"test_a"]}, play=lambda name, _: SUCCESS if name else FAILED)
    (result,) = await run(pool, suite())
    assert (result.test, result.passed, result.reason) == ("", False, "a.lua:1: no")


async def test_a_luau_construct_is_named() -> None:
    complaint = ScriptError("jobs/shop.lua", 1, "syntax error near '+'")
    pool = FakeTestPool({}, play=lambda *_: FAILED, complaint=complaint)
    (result,) = await run(pool, suite())
    assert "jobs/shop.lua:1: syntax error near '+'" in result.reason
    assert "write x = x + 1" in result.reason


@pytest.mark.parametrize(
    ("endings", "passed", "tries"), [([LOST], True, 2), ([GUILTY], False, 1), ([LOST] * 99, False, TRIES)]
)
async def test_a_test_whose_worker_died_of_another_one_runs_again_but_not_for_ever(
    endings: list[Ending], passed: bool, tries: int
) -> None:
    left = iter(endings)
    pool = FakeTestPool({"shop": [b"test_a"]}, play=lambda name, _: next(left, SUCCESS) if name else SUCCESS)
    (result,) = await run(pool, suite())
    assert (result.passed, pool.story.count("shop test_a")) == (passed, tries)


async def test_a_test_for_which_no_worker_can_be_had_has_failed() -> None:
    def play(name: str, _: Request) -> Ending:
        if name:
            raise PoolError("no worker could be had")
        return SUCCESS

    (result,) = await run(FakeTestPool({"shop": [b"test_a"]}, play=play), suite())
    assert (result.passed, result.reason) == (False, "no worker could be had")


async def test_an_environment_that_can_not_be_made_is_one_failure() -> None:
    async def refuse() -> None:
        raise Refused("no port is free")

    @asynccontextmanager
    async def no_environment(suite: Suite) -> AsyncIterator[SuiteEnvironment]:
        await refuse()
        yield PlainEnvironment()

    progress = Progress()

    (result,) = await runner(FakeTestPool({}), progress, no_environment).run([suite()], "")

    assert (result.test, result.passed, result.reason) == ("", False, "no port is free")
    assert progress.seen == [result]


async def test_a_test_runs_with_its_jobs_limits_and_its_environments_options() -> None:
    pool = FakeTestPool({"shop": [b"test_a"]})

    await run(pool, suite(timeout_ms=7, cpu_limit_ms=5))

    found, test = pool.requests
    assert (test.timeout_ms, test.cpu_limit_ms, test.procedure) == (7, 5, "test")
    assert found.arguments[0] == {"virtual_time": True, "ctx": ctx_for(suite(), found.run, FakeClock().now_ms())}
    assert test.arguments[0] == b"test_a"


def test_ctx_is_that_of_a_run_by_hand() -> None:
    plain = ctx_for(suite(), RunId(3), 5000)
    assert plain == {
        "job": "shop", "run_id": 3, "attempt": 1, "scheduled_at": 5.0, "started_at": 5.0, "trigger": {"type": "manual"},
    }  # fmt: skip
    assert ctx_for(suite(is_monitor=True), RunId(3), 5000) == {**plain, "worker_id": 1}


MONITOR = 'name = "The Shop"\nurl = "https://example.org"\nselector = "li"\nfields = ["title:a"]\n'
SCRIPT = '-- /// job\n-- every = "never"\n-- ///\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path


def save(root: Path, **files: str) -> None:
    """`jobs__x__tests_lua="..."` is jobs/x/tests.lua."""
    for name, text in files.items():
        stem, _, kind = name.replace("__", "/").rpartition("_")
        path = root / f"{stem}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path, wanted: str | None = None) -> FoundSuites:
    return find_suites(root, scan(root, load_settings(root, environ={}, flags={})), wanted)


def files_of(root: Path, wanted: str | None = None) -> list[list[str]]:
    return [[suite.code.chunk, *(path for path, _ in suite.code.more)] for suite in found(root, wanted).suites]


def test_a_monitors_files_come_in_their_order_and_its_tests_last_also_where_it_is_disabled(project: Path) -> None:
    save(project, jobs__shop__config_toml=MONITOR + "enabled = false\n")
    save(project, jobs__shop__hooks_lua="x = 1", jobs__shop__defer_lua="y = 1", jobs__shop__tests_lua="z = 1")
    assert files_of(project) == [["jobs/shop/hooks.lua", "jobs/shop/defer.lua", "jobs/shop/tests.lua"]]


def test_a_scripts_tests_are_in_its_folder(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + "x = 1", jobs__ping__tests_lua="y = 1")
    save(project, jobs__pong__init_lua=SCRIPT + "x = 1", jobs__pong__tests_lua="y = 1")
    assert files_of(project) == [
        ["jobs/ping.lua", "jobs/ping/tests.lua"],
        ["jobs/pong/init.lua", "jobs/pong/tests.lua"],
    ]


@needs_linux
def test_a_folder_that_may_not_be_entered_is_told_beside_the_others(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + "x = 1", jobs__ping__tests_lua="y = 1")
    save(project, jobs__pong_lua=SCRIPT + "x = 1", jobs__pong__tests_lua="y = 1")
    (project / "jobs" / "ping").chmod(0)

    with bound_by_file_modes():
        all_found = found(project)

    assert [suite.title for suite in all_found.suites] == ["pong"]
    assert all("can't be read: Permission denied" in why for _, why in all_found.broken)
    assert {"ping", "jobs/ping"} >= {name for name, _ in all_found.broken} >= {"ping"}


def test_a_job_in_whose_files_no_test_can_be_is_not_touched(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + 'http_post("https://example.org", "")')
    save(project, jobs__pong_lua=SCRIPT + "function test_pong() end")
    assert files_of(project) == [["jobs/pong.lua"]]


def test_a_job_is_found_by_its_name_and_by_its_id(project: Path) -> None:
    save(project, jobs__shop__config_toml=MONITOR, jobs__shop__tests_lua="z = 1", jobs__ping_lua=SCRIPT + "x = 1")
    assert files_of(project, "The Shop") == files_of(project, "the_shop") == [["jobs/shop/tests.lua"]]
    with pytest.raises(Refused, match="no job is named 'the-shop': did you mean 'the_shop'"):
        found(project, "the-shop")


def test_a_job_that_does_not_load_is_told(project: Path) -> None:
    save(project, jobs__typo_lua='-- /// job\n-- evry = "5s"\n-- ///\n', jobs__ping_lua=SCRIPT + "x = 1")
    reason = 'jobs/typo.lua:2: evry: unknown key; did you mean "every"?'
    assert found(project).broken == found(project, "typo").broken == [("typo", reason)]
    assert found(project, "ping").broken == []


def test_tests_that_are_no_text_are_told(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + "x = 1")
    (project / "jobs" / "ping").mkdir()
    (project / "jobs" / "ping" / "tests.lua").write_bytes(b"\x1bLua")
    assert found(project).broken == [("ping", "jobs/ping/tests.lua:1: is Lua bytecode; only source text is run")]


def test_a_suite_has_the_limits_of_its_job(project: Path) -> None:
    head = '-- /// job\n-- timeout = "2s"\n-- cpu_limit = "1s"\n-- memory_limit = "32MB"\n-- agent = "a"\n-- ///\n'
    save(project, jobs__ping_lua=head + "function test_x() end")
    (suite,) = found(project).suites
    assert (suite.timeout_ms, suite.cpu_limit_ms, suite.code.memory_limit, suite.agent) == (2000, 1000, 32 << 20, "a")


def test_the_servers_tests_are_found_in_their_file_alone_also_where_nothing_else_is(tmp_path: Path) -> None:
    save(tmp_path, server__init_lua="x = 1", server__tests_lua="y = 1")

    everything = found(tmp_path)
    (suite,) = everything.suites
    assert everything.broken == []
    assert (suite.title, suite.job, suite.folder) == ("server", "/server", "server")
    assert (suite.finding.chunk, suite.finding.more) == ("server/tests.lua", ())
    assert (suite.code.chunk, suite.code.more) == ("server/init.lua", (("server/tests.lua", b"y = 1"),))
    assert suite.code.isolation is Isolation.SHARED


def test_the_servers_tests_need_both_files(project: Path) -> None:
    with pytest.raises(Refused, match="there is neither"):
        found(project, "server")
    save(project, server__init_lua="x = 1")
    assert found(project) == FoundSuites()
    with pytest.raises(Refused, match=r"there is server/init\.lua"):
        found(project, "server")


def test_what_is_wrong_and_no_jobs_own_is_told(tmp_path: Path) -> None:
    save(tmp_path, jobs_toml="[[jobs]\n")
    ((title, reason),) = found(tmp_path).broken
    assert title == "jobs.toml"
    assert reason.startswith("jobs.toml:1: ")


def test_a_job_called_server_is_tested_beside_the_server(project: Path) -> None:
    save(
        project, server__init_lua="x = 1", server__tests_lua="y = 1", jobs__server_lua=SCRIPT + "function test_x() end"
    )
    assert files_of(project, "server") == [["server/init.lua", "server/tests.lua"], ["jobs/server.lua"]]
