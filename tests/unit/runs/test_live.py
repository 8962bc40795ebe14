from __future__ import annotations

from msgspec import structs

from spyweb.model import After, JobId, Run, RunId, RunState
from spyweb.runs.live import LiveJobs
from tests.fakes.harness import make_job


def test_dependents_are_found_once_linked() -> None:
    live = LiveJobs()
    live.add(make_job())
    live.add(make_job("report", after=(After(job=JobId("prices")),)))
    live.link()
    assert [job.id for job in live.after(JobId("prices"))] == ["report"]
    live.remove(JobId("report"))
    assert live.after(JobId("prices")) == []


def test_a_paused_job_is_not_scheduled_and_a_disabled_one_follows_nobody() -> None:
    live = LiveJobs()
    job = make_job("report", after=(After(job=JobId("prices")),))
    job.cursor = structs.replace(job.cursor, paused=True)
    live.add(job)
    live.add(make_job("off", after=(After(job=JobId("prices")),), enabled=False))
    live.link()
    assert not job.scheduled
    assert live.after(JobId("prices")) == [job]


def test_who_listens_hears_of_awaited_jobs_when_they_change() -> None:
    live, told = LiveJobs(), list[frozenset[str]]()
    live.on_linked(lambda: told.append(live.unloadable))
    for awaited in (frozenset({"a"}), frozenset({"a"}), frozenset[str]()):
        live.set_unloadable(awaited)

    assert told == [{"a"}, frozenset()]


def test_a_job_that_was_removed_while_it_was_busy_counts_until_its_runs_have_ended() -> None:
    live, run = LiveJobs(), Run(id=RunId(7), job=JobId("prices"), state=RunState.RUNNING)
    live.add(job := make_job())
    job.queue.in_flight[run.id] = run
    live.remove(job.id)
    assert (live.running(), live.is_busy(), live.current(job)) == ([run], True, job)
    live.add(back := make_job())
    assert (live.running(), back.queue.in_flight, live.current(job)) == ([run], {7: run}, back)
    del job.queue.in_flight[run.id]
    assert (live.running(), live.is_busy()) == ([], False)
