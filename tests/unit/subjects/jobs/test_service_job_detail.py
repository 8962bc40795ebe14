"""Everything about one job, asked of a service over a harness."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.errors import Problem, Refused
from spyweb.model import After, Ending, Every, Failure, JobId, Never, Outcome, Pings
from spyweb.subjects.jobs.views import NEXT_SHOWN
from tests.fakes.harness import make_job
from tests.fakes.pool import SUCCESS
from tests.fakes.served import Served, serving

PRICES, NEWS, TYPO = JobId("prices"), JobId("news"), JobId("typo")
BOOM = Ending(
    outcome=Outcome.FAILED,
    failure=Failure.ERROR,
    reason="jobs/prices.lua:2: boom",
    traceback="stack traceback:\n\tjobs/prices.lua:3: in main chunk",
)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs by hand: prices, whose file is on disk, and news after it."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/prices.lua").write_text("-- /// job\n-- every = 'never'\n-- ///\n")
    prices = make_job("prices", schedule=Never())
    prices.code = replace(prices.code, source=b"one\ntwo\nthree")
    after = (After(job=PRICES), After(job=TYPO))
    async with serving(tmp_path, prices, make_job("news", schedule=Never(), after=after)) as served:
        yield served


async def test_a_job_says_when_it_runs_and_what_it_follows(served: Served) -> None:
    prices, news = await served.details.detail(PRICES), await served.details.detail(NEWS)

    assert (prices.schedule, news.schedule) == ("only by hand", "after prices, typo")
    assert [(tie.job, tie.outcomes) for tie in prices.followed_by] == [(NEWS, [Outcome.SUCCESS])]
    assert [(tie.job, tie.is_there) for tie in news.follows] == [(PRICES, True), (TYPO, False)]
    assert (prices.files, prices.namespace, prices.error) == (["jobs/prices.lua"], "job:prices", None)
    assert "timeout" in {setting.key for setting in prices.settings}
    await served.t.settle(make_job("late", schedule=Every(period_ms=60_000)))
    assert len((await served.details.detail(JobId("late"))).next_due) == NEXT_SHOWN


async def test_a_job_that_fails_shows_the_line_and_that_it_is_the_same_error_each_time(served: Served) -> None:
    await served.run(PRICES, SUCCESS, BOOM, BOOM)
    error = (await served.details.detail(PRICES)).error

    assert error is not None
    assert (error.reason, error.is_same, error.failure) == ("jobs/prices.lua:2: boom", True, "error")
    assert error.source is not None
    assert (error.source.file, error.source.line, error.source.lines) == ("jobs/prices.lua", 2, ["one", "two", "three"])
    assert [frame.line for frame in error.frames] == [None, 3]


async def test_an_error_of_an_older_version_shows_no_line_of_the_newer(served: Served) -> None:
    await served.run(PRICES, BOOM)
    served.job(PRICES).code = replace(served.job(PRICES).code, generation=2)

    error = (await served.details.detail(PRICES)).error
    assert error is not None
    assert error.source is None


async def test_a_job_that_never_loaded_shows_its_problem_in_its_file(served: Served) -> None:
    (served.root / "jobs/typo.lua").write_text("a\nb\nc\n")
    served.reloader.broken = {TYPO: [Problem("jobs/typo.lua", 2, None, "unexpected symbol")]}
    found = await served.details.detail(TYPO)

    assert [(problem.line, problem.reason) for problem in found.problems] == [(2, "unexpected symbol")]
    assert found.source is not None
    assert (found.source.lines, found.source.line) == (["a", "b", "c"], 2)
    assert (await served.details.source(TYPO)).lines == ["a", "b", "c"]


async def test_no_line_of_a_file_of_settings_is_shown(served: Served) -> None:
    (served.root / "config.toml").write_text('api_key = "hunter2"\nx = \n')
    served.reloader.broken = {TYPO: [Problem("config.toml", 2, None, "not valid TOML")]}
    found = await served.details.detail(TYPO)

    assert found.source is not None
    assert (found.source.lines, found.source.problem) == ((), "only Lua files are shown")


async def test_a_file_that_is_gone_says_so(served: Served) -> None:
    served.reloader.broken = {TYPO: [Problem("jobs/typo.lua", 2, None, "unexpected symbol")]}
    found = await served.details.detail(TYPO)
    assert found.source is not None
    assert found.source.problem.startswith("can't be read")


async def test_source_is_that_of_the_version_that_runs(served: Served) -> None:
    assert (await served.details.source(PRICES)).lines == ["one", "two", "three"]
    assert (await served.details.source(PRICES, "jobs/prices.lua")).total == 3


@pytest.mark.parametrize("file", ["../data/key", "config.toml", "jobs/news.lua"])
async def test_no_other_file_is_shown_as_source(served: Served, file: str) -> None:
    with pytest.raises(Refused, match="has no Lua file"):
        await served.details.source(PRICES, file)


async def test_a_job_that_is_gone_is_refused(served: Served) -> None:
    for ask in (served.details.detail(TYPO), served.details.source(TYPO)):
        with pytest.raises(Refused, match="typo is gone"):
            await ask


async def test_a_monitor_without_lua_has_no_source(served: Served) -> None:
    served.job(PRICES).code = replace(served.job(PRICES).code, source=b"")
    with pytest.raises(Refused, match="prices has no Lua"):
        await served.details.source(PRICES)


async def test_a_job_that_runs_elsewhere_says_so_and_when_it_is_expected_to_tell_of_itself(served: Served) -> None:
    assert not (await served.details.detail(PRICES)).is_elsewhere
    served.job(PRICES).spec = make_job(
        "prices", path="config.toml", schedule=Pings(schedule=Every(period_ms=86_400_000), grace_ms=3_600_000)
    ).spec
    detail = await served.details.detail(PRICES)
    assert detail.is_elsewhere
    assert detail.schedule == "expects a ping every day, at most 1h later"
