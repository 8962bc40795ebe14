"""Everything about one job, asked of a service over a harness."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.errors import Problem, Refused
from spyweb.model import After, Ending, Every, Failure, JobId, Never, Outcome, Pings
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.service.job_detail import JobDetails
from spyweb.service.overview import OverviewService
from spyweb.settings.load import load_settings
from spyweb.views.health import view_health
from spyweb.views.jobs import JobFacts, NextRun, broken_job, next_run, view_job
from tests.fakes.daemon_service import make_vitals
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.pool import SUCCESS

PRICES, NEWS, TYPO = JobId("prices"), JobId("news"), JobId("typo")
BOOM = Ending(
    outcome=Outcome.FAILED,
    failure=Failure.ERROR,
    reason="jobs/prices.lua:2: boom",
    traceback="stack traceback:\n\tjobs/prices.lua:3: in main chunk",
)


@dataclass(slots=True, kw_only=True)
class Asked:
    """The details of the jobs of a harness, and the problems of those that do not load."""

    harness: Harness
    root: Path
    details: JobDetails
    broken: dict[JobId, Sequence[Problem]]

    async def run(self, *endings: Ending) -> None:
        self.harness.pool.endings[PRICES] = list(endings)
        for _ in endings:
            await self.harness.runner.start(self.live, [by_hand()])
            await self.harness.clock.turn()

    @property
    def live(self) -> LiveJob:
        found = self.harness.live.find(PRICES)
        assert found is not None
        return found


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    """Two jobs by hand: prices, whose file is on disk, and news after it."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/prices.lua").write_text("-- /// job\n-- every = 'never'\n-- ///\n")
    broken: dict[JobId, Sequence[Problem]] = {}
    async with harness() as t:
        overview = OverviewService(
            live=t.live,
            runs=t.store.runs,
            past_runs=t.store.past_runs,
            clock=t.clock,
            view=lambda job: view_job(job.spec, JobFacts(cursor=job.cursor, last=job.last)),
            broken=lambda: [broken_job(job, problems) for job, problems in broken.items()],
            health=lambda: view_health(make_vitals(), []),
        )

        async def next_runs(job: JobId, count: int) -> list[NextRun]:
            return [next_run(job, 60_000 * number, "UTC") for number in range(count)]

        details = JobDetails(
            root=tmp_path,
            timezone="UTC",
            live=t.live,
            past_runs=t.store.past_runs,
            overview=overview,
            settings=lambda: load_settings(tmp_path, environ={}, flags={}),
            broken=lambda: broken,
            next_runs=next_runs,
        )
        prices = make_job("prices", schedule=Never())
        prices.code = replace(prices.code, source=b"one\ntwo\nthree")
        after = (After(job=PRICES), After(job=TYPO))
        await t.settle(prices, make_job("news", schedule=Never(), after=after))
        yield Asked(harness=t, root=tmp_path, details=details, broken=broken)


async def test_a_job_says_when_it_runs_and_what_it_follows(asked: Asked) -> None:
    prices, news = await asked.details.detail(PRICES), await asked.details.detail(NEWS)

    assert (prices.schedule, news.schedule) == ("only by hand", "after prices, typo")
    assert [(tie.job, tie.outcomes) for tie in prices.followed_by] == [(NEWS, [Outcome.SUCCESS])]
    assert [(tie.job, tie.is_there) for tie in news.follows] == [(PRICES, True), (TYPO, False)]
    assert len(prices.next_due) == 5
    assert (prices.files, prices.namespace, prices.error) == (["jobs/prices.lua"], "job:prices", None)


async def test_a_job_that_fails_shows_the_line_and_that_it_is_the_same_error_each_time(asked: Asked) -> None:
    await asked.run(SUCCESS, BOOM, BOOM)
    error = (await asked.details.detail(PRICES)).error

    assert error is not None
    assert (error.reason, error.is_same, error.failure) == ("jobs/prices.lua:2: boom", True, "error")
    assert error.source is not None
    assert (error.source.file, error.source.line, error.source.lines) == ("jobs/prices.lua", 2, ["one", "two", "three"])
    assert [frame.line for frame in error.frames] == [None, 3]


async def test_an_error_of_an_older_version_shows_no_line_of_the_newer(asked: Asked) -> None:
    await asked.run(BOOM)
    asked.live.code = replace(asked.live.code, generation=2)

    error = (await asked.details.detail(PRICES)).error
    assert error is not None
    assert error.source is None


async def test_a_job_that_never_loaded_shows_its_problem_in_its_file(asked: Asked) -> None:
    (asked.root / "jobs/typo.lua").write_text("a\nb\nc\n")
    asked.broken[TYPO] = [Problem("jobs/typo.lua", 2, None, "unexpected symbol")]
    found = await asked.details.detail(TYPO)

    assert [(problem.line, problem.reason) for problem in found.problems] == [(2, "unexpected symbol")]
    assert found.source is not None
    assert (found.source.lines, found.source.line) == (["a", "b", "c"], 2)
    assert (await asked.details.source(TYPO)).lines == ["a", "b", "c"]


async def test_no_line_of_a_file_of_settings_is_shown(asked: Asked) -> None:
    (asked.root / "config.toml").write_text('api_key = "hunter2"\nx = \n')
    asked.broken[TYPO] = [Problem("config.toml", 2, None, "not valid TOML")]
    found = await asked.details.detail(TYPO)

    assert found.source is not None
    assert (found.source.lines, found.source.problem) == ((), "only Lua files are shown")


async def test_a_file_that_is_gone_says_so(asked: Asked) -> None:
    asked.broken[TYPO] = [Problem("jobs/typo.lua", 2, None, "unexpected symbol")]
    found = await asked.details.detail(TYPO)
    assert found.source is not None
    assert found.source.problem.startswith("can't be read")


async def test_source_is_that_of_the_version_that_runs(asked: Asked) -> None:
    assert (await asked.details.source(PRICES)).lines == ["one", "two", "three"]
    assert (await asked.details.source(PRICES, "jobs/prices.lua")).total == 3


@pytest.mark.parametrize("file", ["../data/key", "config.toml", "jobs/news.lua"])
async def test_no_other_file_is_shown_as_source(asked: Asked, file: str) -> None:
    with pytest.raises(Refused, match="has no Lua file"):
        await asked.details.source(PRICES, file)


async def test_a_job_that_is_gone_is_refused(asked: Asked) -> None:
    for ask in (asked.details.detail(TYPO), asked.details.source(TYPO)):
        with pytest.raises(Refused, match="typo is gone"):
            await ask


async def test_a_monitor_without_lua_has_no_source(asked: Asked) -> None:
    asked.live.code = replace(asked.live.code, source=b"")
    with pytest.raises(Refused, match="prices has no Lua"):
        await asked.details.source(PRICES)


async def test_a_job_that_runs_elsewhere_says_so_and_when_it_is_expected_to_tell_of_itself(asked: Asked) -> None:
    assert not (await asked.details.detail(PRICES)).is_elsewhere
    asked.live.spec = make_job(
        "prices", path="config.toml", schedule=Pings(schedule=Every(period_ms=86_400_000), grace_ms=3_600_000)
    ).spec
    detail = await asked.details.detail(PRICES)
    assert detail.is_elsewhere
    assert detail.schedule == "expects a ping every day, at most 1h later"
