"""Jobs, and everything about one of them, asked of a service over a harness."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.errors import Absent, Problem, Refused
from spyweb.model import After, Ending, Every, Failure, JobId, Never, Outcome, Pings, RunId
from spyweb.subjects.jobs.views import NEXT_SHOWN
from spyweb.subjects.runs.service import LINE_BYTES, MOST_LOG_BYTES, RunWatcher
from spyweb.views.jobs import JobState
from spyweb.views.runs import LogLine, RunEnded
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import make_run
from tests.fakes.harness import MINUTE_MS, make_job
from tests.fakes.pool import SUCCESS
from tests.fakes.served import Served, serving

PRICES, BACKUP, NEWS, TYPO = (JobId(name) for name in ("prices", "backup", "news", "typo"))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs: prices each minute, backup by hand alone."""
    jobs = make_job("prices"), make_job("backup", schedule=Every(period_ms=5 * MINUTE_MS))
    async with serving(tmp_path, *jobs) as served:
        yield served


async def test_jobs_are_shown_by_id_with_what_is_known_of_each(served: Served) -> None:
    backup, prices = served.jobs.jobs()

    assert (backup.id, backup.vms, prices.id, prices.vms) == (BACKUP, 6, PRICES, 6)
    assert [view.state for view in (backup, prices)] == [JobState.IDLE, JobState.IDLE]


async def test_a_job_that_never_loaded_is_broken_and_one_whose_earlier_version_runs_is_not(served: Served) -> None:
    problem = Problem("jobs/typo.lua", 1, None, "unexpected symbol")
    served.reloader.broken = {TYPO: [problem], PRICES: [problem]}

    states = {view.id: view.state for view in served.jobs.jobs()}

    assert states == {BACKUP: JobState.IDLE, PRICES: JobState.IDLE, TYPO: JobState.BROKEN}
    assert served.health.health().jobs[JobState.BROKEN] == 1


async def test_what_is_doubtful_in_files_and_about_live_jobs_is_listed_once(served: Served) -> None:
    of_file, of_job = (Problem(f"jobs/{name}.lua", 1, None, "odd", is_warning=True) for name in ("prices", "backup"))
    served.reloader.warnings = (of_file,)
    for job in served.t.live:
        job.warnings = (of_file if job.id == PRICES else of_job,)
    assert served.jobs.warnings() == [of_job, of_file]


async def test_due_times_of_all_jobs_come_earliest_first_and_those_of_one_alone(served: Served) -> None:
    both = await served.jobs.next_runs(None, 7)
    one = await served.jobs.next_runs(BACKUP, 2)

    assert [run.due_ms for run in both] == sorted(run.due_ms for run in both)
    assert len(both) == 7
    assert {run.job for run in both} == {PRICES, BACKUP}
    assert {run.job for run in one} == {BACKUP}
    assert one[1].due_ms - one[0].due_ms == 5 * MINUTE_MS


async def test_due_times_of_a_span_are_those_of_the_jobs_that_may_be_seen(served: Served) -> None:
    every = await served.jobs.next_runs(None, 100)
    until_ms = every[20].due_ms
    found = await served.jobs.next_runs(None, 100, until_ms=until_ms)
    seen = await served.jobs.next_runs(None, 100, until_ms=until_ms, may_see=lambda job: job == BACKUP)

    assert [run.due_ms for run in found] == [run.due_ms for run in every if run.due_ms < until_ms]
    assert [run.due_ms for run in seen] == [run.due_ms for run in found if run.job == BACKUP] != []


async def test_a_paused_job_shows_it_and_has_no_due_times_until_it_is_resumed(served: Served) -> None:
    await served.jobs.pause(PRICES)
    assert served.jobs.jobs()[1].state == JobState.PAUSED
    assert await served.jobs.next_runs(PRICES, 2) == []

    await served.jobs.resume(PRICES)
    assert served.jobs.jobs()[1].state == JobState.IDLE
    assert len(await served.jobs.next_runs(PRICES, 2)) == 2


async def test_a_run_is_cancelled_once_and_one_that_never_was_is_absent(served: Served) -> None:
    served.t.pool.held.add(BACKUP)
    run = (await served.runs.start(BACKUP)).run
    assert run is not None
    await served.t.clock.turn()
    cancelled = await served.runs.cancel(run)
    assert (cancelled.id, cancelled.job) == (run, BACKUP)
    await served.t.clock.turn()
    with pytest.raises(Refused, match="is not under way"):
        await served.runs.cancel(run)
    with pytest.raises(Absent, match="there is no run 99"):
        await served.runs.cancel(RunId(99))


async def test_a_job_that_is_gone_is_refused_by_name(served: Served) -> None:
    for ask in (
        served.runs.start(TYPO),
        served.jobs.pause(TYPO),
        served.jobs.resume(TYPO),
        served.jobs.next_runs(TYPO, 1),
        served.details.detail(TYPO),
        served.details.source(TYPO),
    ):
        with pytest.raises(Refused, match="typo was removed"):
            await ask
    with pytest.raises(Refused, match="typo was removed"):
        await anext(served.runs.run_once(TYPO))
    with pytest.raises(Refused, match="typo was removed"):
        served.jobs.log_file(TYPO)


LINE = b"x" * (MOST_LOG_BYTES // 4 - LINE_BYTES)


async def text_of_next(watcher: RunWatcher) -> str:
    event = await watcher.next()
    assert isinstance(event, LogLine)
    return f"{event.level} {event.text[:60]}"


async def test_lines_come_in_their_order_and_then_the_end() -> None:
    watcher = RunWatcher(FakeClock())
    watcher.log("info", b"one")
    watcher.log("warn", b"two")
    watcher.ended(make_run(), Ending(outcome=Outcome.SUCCESS))

    assert [await text_of_next(watcher), await text_of_next(watcher)] == ["info one", "warn two"]
    assert isinstance(await watcher.next(), RunEnded)


async def test_who_reads_too_slowly_is_told_how_many_lines_are_missing() -> None:
    watcher = RunWatcher(FakeClock())
    for _ in range(7):
        watcher.log("info", LINE)
    for _ in range(4):
        assert (await text_of_next(watcher)).startswith("info xxx")
    watcher.log("info", b"again")
    missing = "warn {} lines came faster than they were read and are not shown"

    assert await text_of_next(watcher) == missing.format(3)
    assert await text_of_next(watcher) == "info again"

    for _ in range(6):
        watcher.log("info", LINE)
    watcher.ended(make_run(), Ending(outcome=Outcome.SUCCESS))
    for _ in range(4):
        await watcher.next()
    assert await text_of_next(watcher) == missing.format(2)
    assert isinstance(await watcher.next(), RunEnded)


async def test_empty_lines_take_room_as_well() -> None:
    watcher = RunWatcher(FakeClock())
    for _ in range(MOST_LOG_BYTES // LINE_BYTES + 7):
        watcher.log("info", b"")
    for _ in range(MOST_LOG_BYTES // LINE_BYTES):
        await text_of_next(watcher)
    watcher.log("info", b"again")
    assert await text_of_next(watcher) == "warn 7 lines came faster than they were read and are not shown"


async def test_nothing_is_kept_for_who_has_left() -> None:
    watcher = RunWatcher(FakeClock())
    watcher.is_watched = False
    watcher.log("info", b"one")
    watcher.ended(make_run(), Ending(outcome=Outcome.SUCCESS))

    assert isinstance(await watcher.next(), RunEnded)


BOOM = Ending(
    outcome=Outcome.FAILED,
    failure=Failure.ERROR,
    reason="jobs/prices.lua:2: boom",
    traceback="stack traceback:\n\tjobs/prices.lua:3: in main chunk",
)


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs by hand: prices, whose file is on disk, and news after it."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/prices.lua").write_text("-- /// job\n-- every = 'never'\n-- ///\n")
    prices = make_job("prices", schedule=Never())
    prices.code = replace(prices.code, source=b"one\ntwo\nthree")
    after = (After(job=PRICES), After(job=TYPO))
    async with serving(tmp_path, prices, make_job("news", schedule=Never(), after=after)) as followed:
        yield followed


async def test_a_job_says_when_it_runs_and_what_it_follows(followed: Served) -> None:
    prices, news = await followed.details.detail(PRICES), await followed.details.detail(NEWS)

    assert (prices.schedule, news.schedule) == ("only manually", "after prices, typo")
    assert [(tie.job, tie.outcomes) for tie in prices.followed_by] == [(NEWS, [Outcome.SUCCESS])]
    assert [(tie.job, tie.is_there) for tie in news.follows] == [(PRICES, True), (TYPO, False)]
    assert (prices.files, prices.namespace, prices.error) == (["jobs/prices.lua"], "job:prices", None)
    assert "timeout" in {setting.key for setting in prices.settings}
    await followed.t.settle(make_job("late", schedule=Every(period_ms=60_000)))
    assert len((await followed.details.detail(JobId("late"))).next_due) == NEXT_SHOWN


async def test_a_job_that_fails_shows_the_line_and_that_it_is_the_same_error_each_time(followed: Served) -> None:
    await followed.run(PRICES, SUCCESS, BOOM, BOOM)
    error = (await followed.details.detail(PRICES)).error

    assert error is not None
    assert (error.reason, error.is_same, error.failure) == ("jobs/prices.lua:2: boom", True, "error")
    assert error.source is not None
    assert (error.source.file, error.source.line, error.source.lines) == ("jobs/prices.lua", 2, ["one", "two", "three"])
    assert [frame.line for frame in error.frames] == [None, 3]


async def test_an_error_of_an_older_version_shows_no_line_of_the_newer(followed: Served) -> None:
    await followed.run(PRICES, BOOM)
    followed.job(PRICES).code = replace(followed.job(PRICES).code, generation=2)

    error = (await followed.details.detail(PRICES)).error
    assert error is not None
    assert error.source is None


async def test_a_job_that_never_loaded_shows_its_problem_in_its_file(followed: Served) -> None:
    (followed.root / "jobs/typo.lua").write_text("a\nb\nc\n")
    followed.reloader.broken = {TYPO: [Problem("jobs/typo.lua", 2, None, "unexpected symbol")]}
    found = await followed.details.detail(TYPO)

    assert [(problem.line, problem.reason) for problem in found.problems] == [(2, "unexpected symbol")]
    assert found.source is not None
    assert (found.source.lines, found.source.line, found.namespace) == (["a", "b", "c"], 2, "job:typo")
    assert (await followed.details.source(TYPO)).lines == ["a", "b", "c"]


async def test_no_line_of_a_file_of_settings_is_shown_and_a_file_that_is_gone_says_so(followed: Served) -> None:
    (followed.root / "config.toml").write_text('api_key = "hunter2"\nx = \n')
    followed.reloader.broken = {TYPO: [Problem("config.toml", 2, None, "not valid TOML")]}
    found = await followed.details.detail(TYPO)

    assert found.source is not None
    assert (found.source.lines, found.source.problem) == ((), "only Lua files are shown")
    followed.reloader.broken = {TYPO: [Problem("jobs/typo.lua", 2, None, "unexpected symbol")]}
    found = await followed.details.detail(TYPO)
    assert found.source is not None
    assert found.source.problem.startswith("can't be read")


async def test_source_is_that_of_the_version_that_runs(followed: Served) -> None:
    assert (await followed.details.source(PRICES)).lines == ["one", "two", "three"]
    assert (await followed.details.source(PRICES, "jobs/prices.lua")).total == 3


@pytest.mark.parametrize("file", ["../data/key", "config.toml", "jobs/news.lua"])
async def test_no_other_file_is_shown_as_source_and_none_of_a_monitor_without_lua(followed: Served, file: str) -> None:
    with pytest.raises(Refused, match="has no Lua file"):
        await followed.details.source(PRICES, file)
    followed.job(PRICES).code = replace(followed.job(PRICES).code, source=b"")
    with pytest.raises(Refused, match="prices has no Lua"):
        await followed.details.source(PRICES)


async def test_a_job_that_runs_elsewhere_says_so_and_when_it_is_expected_to_tell_of_itself(followed: Served) -> None:
    assert not (await followed.details.detail(PRICES)).is_elsewhere
    followed.job(PRICES).spec = make_job(
        "prices", path="config.toml", schedule=Pings(schedule=Every(period_ms=86_400_000), grace_ms=3_600_000)
    ).spec
    detail = await followed.details.detail(PRICES)
    assert detail.is_elsewhere
    assert detail.schedule == "expects a ping every day, at most 1h later"
