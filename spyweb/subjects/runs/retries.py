"""Retries that a person asks for: a new run that takes over the finished tasks of one that did not end well."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from spyweb.errors import Absent, Refused
from spyweb.model import Outcome, Run, RunId, RunState, TaskRow, TaskStatus, Trigger, TriggerType
from spyweb.ops.sources import Sources
from spyweb.runs.live import LiveJob
from spyweb.runs.records import first_of, is_finding
from spyweb.runs.runner import RunRequest
from spyweb.store.model.runs import RunPlan
from spyweb.subjects.runs.service import MOST_FOLLOWERS, RunService
from spyweb.views.runs import RunRetried
from spyweb.words import counted

RETRIED = (Outcome.FAILED, Outcome.LOST, Outcome.STOPPED)
MOST_FILES = 3  # that a refusal names
OWN = ""  # in the code of a plan: the job's own files


class Prospect(Struct, frozen=True, kw_only=True):
    """The tasks of a retry, before it is started."""

    first: str = ""  # the first task that would run; empty where the job starts from the beginning
    taken_over: int = 0  # finished tasks
    changed: str = ""  # files of the job that differ from those of the run, where there are finished tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryService:
    runs: RunService
    sources: Sources

    async def prospect(self, run: Run, *, is_repeated: bool = False) -> Prospect:
        """Return the tasks that a retry of a run would take over.  Raises Refused where it can't be retried.

        `is_repeated` where the same request has started the retry before.
        """
        job = self.runs.past.live.find(run.job)
        reason = refusal_of(run) or ("" if job else f"its job {run.job} no longer exists: put its file back first")
        if reason := reason or ("" if is_repeated else await self._tried_again(run)):
            raise Refused(f"run {run.id} can't be retried: {reason}")
        tasks = self.runs.past.store.tasks
        # One that failed before its first task has recorded none: those that it had to take over are of an earlier run.
        for recorded in reversed([*await tasks.chain(run.id), run.id]):
            rows = (await tasks.of_runs([recorded])).get(recorded, ())
            done = [row for row in rows if is_done(row)]
            if done and job:
                plan = await tasks.plan(recorded)
                changed = await self._changed(job, plan)
                return Prospect(first=first_open(rows, plan), taken_over=len(done), changed=changed)
        return Prospect()

    async def _tried_again(self, run: Run) -> str:
        """Return the refusal of a run that was tried again, by its job or by a person; empty where it was not."""
        first, find = first_of(run), self.runs.past.store.past_runs.followers
        followers = [each for cause in {first, run.id} for each in await find(cause, limit=MOST_FOLLOWERS)]
        attempts = [each for each in followers if each.trigger.of == first or each.trigger.retry_of == run.id]
        later = [each for each in attempts if each.id > run.id and each.outcome is not Outcome.SKIPPED]
        if not later:
            return ""
        last = max(later, key=lambda each: each.id)
        is_done = last.outcome is Outcome.SUCCESS
        rest = ", which succeeded" if is_done else f"; `spyweb retry {last.id}` retries that one"
        return f"run {last.id} is a later attempt{rest}"

    async def _changed(self, job: LiveJob, plan: RunPlan | None) -> str:
        if plan is None:  # the run is of an earlier version of spyweb
            return f"{job.spec.path} may have"
        code = dict(plan.code)
        changed = [job.spec.path] if code.pop(OWN, None) != job.digest else []
        changed += await asyncio.to_thread(self.sources.differing, code)
        return ", ".join(changed[:MOST_FILES]) + (", ..." if changed[MOST_FILES:] else "")

    async def retry(self, run_id: RunId, *, anyway: bool = False, key: str | None = None) -> tuple[RunRetried, bool]:
        """Start a run that retries another; return it, and whether an earlier request with this key has started it.

        Raises Absent where there is no such run, Refused as `prospect` and RunService.start do, and where the code has
        changed; `anyway` allows that.
        """
        run = await self.runs.past.find(run_id)
        if run is None:
            raise Absent(f"there is no run {run_id}: `spyweb runs` lists the runs")
        request = self.runs.key_of(f"retry {run.job}", key, str(run_id).encode())
        is_repeated = request is not None and await self.runs.once.known(request) is not None
        prospect = await self.prospect(run, is_repeated=is_repeated)
        if prospect.changed and not (anyway or is_repeated):
            raise Refused(
                f"{prospect.changed} changed since run {run_id}: `spyweb retry {run_id} --anyway` takes over "
                f"{counted(prospect.taken_over, 'task')} all the same, `spyweb trigger {run.job}` starts anew"
            )
        started = await self.runs.start_as(run.job, request_of(run), request)
        view = RunRetried(
            run=started.run, job=run.job, retry_of=run_id, taken_over=prospect.taken_over, first_task=prospect.first
        )
        return view, started.is_repeated


def request_of(run: Run) -> RunRequest:
    """Return the request of a run that retries this one, with the same payload."""
    sent = {name: getattr(run.trigger, name) for name in ("values", "payload", "headers", "query", "depth")}
    return RunRequest(trigger=Trigger(type=TriggerType.RETRY, retry_of=run.id, **sent))


def refusal_of(run: Run) -> str:
    """Return why a run can't be retried, and what to do; empty where it can."""
    trigger, again = run.trigger, f"`spyweb trigger {run.job}` starts the job"
    reasons = (
        (run.state is not RunState.ENDED, "it has not ended yet"),
        (run.outcome is Outcome.SUCCESS, f"it succeeded; {again} again"),
        (run.outcome not in RETRIED, f"it did not fail, its outcome is {run.outcome}; {again}"),
        (trigger.is_trial, f"it was a dry run or a debug run; {again}"),
        (bool(trigger.incident), "it called an alert hook of its job, not the job itself"),
        (is_finding(run), f"it was a drift check; `spyweb drift {run.job}` checks again"),
        (trigger.change is not None, f"the change of state that started it is no longer stored; {again} without it"),
        (trigger.payload_stored, "its large payload is no longer stored; send it again"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def is_done(row: TaskRow) -> bool:
    """Return whether a task is not performed again: it succeeded, or its own condition skipped it."""
    return row.status is not TaskStatus.FAILED and row.started_ms is not None


def first_open(rows: Sequence[TaskRow], plan: RunPlan | None) -> str:
    """Return the first task that is not finished; empty where all are."""
    done = {(row.workflow, row.name) for row in rows if is_done(row)}
    tasks = (plan.tasks if plan else ()) or [(row.workflow, row.name) for row in rows]
    return next((name for workflow, name in tasks if (workflow, name) not in done), "")
