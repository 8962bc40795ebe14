"""Suites on a pool without Lua: which tests are called, in what order, and what becomes of how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from spyweb.errors import PoolError, Refused, ScriptError
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Lineage, Request
from spyweb.model import Ending, Failure, JobId, Outcome, RunId
from spyweb.ops.world import JobLog
from spyweb.testing.results import CaseResult
from spyweb.testing.run import AT_ONCE, TRIES, SuiteEnvironment, SuiteRunner, ctx_for
from spyweb.testing.suites import Suite
from tests.fakes.clock import FakeClock
from tests.fakes.pool import GUILTY, LOST, SUCCESS

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


async def test_a_test_whose_worker_died_of_another_one_runs_again() -> None:
    lost = iter([LOST])
    pool = FakeTestPool({"shop": [b"test_a"]}, play=lambda name, _: next(lost, SUCCESS) if name else SUCCESS)

    (result,) = await run(pool, suite())

    assert result.passed
    assert pool.story.count("shop test_a") == 2


async def test_a_test_that_takes_its_worker_down_has_failed() -> None:
    pool = FakeTestPool({"shop": [b"test_a"]}, play=lambda name, _: GUILTY if name else SUCCESS)

    (result,) = await run(pool, suite())

    assert not result.passed
    assert pool.story.count("shop test_a") == 1


async def test_bad_luck_is_not_waited_out_for_ever() -> None:
    pool = FakeTestPool({"shop": [b"test_a"]}, play=lambda name, _: LOST if name else SUCCESS)

    (result,) = await run(pool, suite())

    assert not result.passed
    assert pool.story.count("shop test_a") == TRIES


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
