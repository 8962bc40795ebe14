"""Faults that are planted in a daemon that is alone on its database, one at a time."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from spyweb.alerts.watcher import AlertWatcher
from spyweb.logs.output import note_refused
from spyweb.model import Run, RunId, RunState
from spyweb.ops.locks import LockKeeper
from spyweb.outbox.sender import OutboxSender, TargetQueue
from spyweb.runs import followups, run_queue
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.run_queue import Admission, RunQueue
from spyweb.runs.runner import NOTHING, Runner
from spyweb.scheduler import scheduler
from spyweb.scheduler.scheduler import DueRuns, Scheduler
from spyweb.schedules import due
from spyweb.schedules.due import schedule_text
from spyweb.store.model.entries import Held
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.messages import QueuedMessage
from spyweb.store.model.runs import Change, End
from spyweb.store.sqlite import batch, incidents, runs
from spyweb.store.sqlite.failures import FAULTS
from spyweb.store.sqlite.locks import Locks
from spyweb.store.sqlite.outbox import Outbox
from spyweb.store.sqlite.runs import Runs
from spyweb.store.sqlite.tasks import Tasks

Context = AbstractContextManager[Any]


def wrapped(owner: Any, name: str, around: Callable[..., Any]) -> Context:
    """Call this in place of a function, with that as its first argument."""
    original = getattr(owner, name)
    return patch.object(owner, name, lambda *arguments, **named: around(original, *arguments, **named))


# The scheduler


def keeping_a_refused_cursor() -> Context:
    """Go on as if a claim had been stored that was refused."""

    def go_on(work: Scheduler, refused: DueRuns, _error: BaseException) -> None:
        work.watch(refused.job)

    return patch.object(Scheduler, "_restore", go_on)


def not_looking_at_the_clock() -> Context:
    return patch.object(Scheduler, "_after_jump", lambda _work: None)


def starting_early() -> Context:
    return wrapped(scheduler, "_decide", lambda decide, job, now_ms: decide(job, now_ms + 700))


def starting_what_is_paused() -> Context:
    def keeps(job: LiveJob) -> bool:
        is_live = not job.gone and job.mine and job.spec.enabled
        return is_live and job.cursor.schedule == schedule_text(job.spec.schedule)

    return patch.object(scheduler, "_keeps_its_schedule", keeps)


# Schedules


def forgetting_an_absence() -> Context:
    return wrapped(due, "_after_absence", lambda after, *rest: replace(after(*rest), skipped=()))


def forgetting_what_was_due_before_an_edit() -> Context:
    return wrapped(due, "_after_edit", lambda after, *rest: replace(after(*rest), skipped=()))


def recording_what_runs_as_missed() -> Context:
    def before(original: Any, spec: Any, cursor_ms: int, passed: Any, runs: Sequence[int]) -> Any:
        missed = original(spec, cursor_ms, passed, runs)
        return replace(passed, reason=missed.reason) if missed else None

    return wrapped(due, "_before", before)


@contextmanager
def without_summer_time() -> Iterator[None]:
    def in_winter(original: Any, expression: str, _zone: str, moment_ms: int) -> Any:
        return original(expression, "Etc/GMT-1", moment_ms)

    with wrapped(due, "cron_after", in_winter), wrapped(due, "cron_until", in_winter):
        yield


# Runs


def not_taking_up_runs() -> Context:
    def take_up(original: Any, runner: Runner, left: Sequence[Run], *rest: Any) -> Any:
        return original(runner, [run for run in left if run.state is RunState.WAITING], *rest)

    return wrapped(Runner, "take_up", take_up)


def committing_what_follows_later() -> Context:
    async def commit(original: Any, runner: Runner, change: Change) -> Any:
        if not change.end or not change.new:
            return await original(runner, change)
        await original(runner, replace(change, new=(), skipped=()))
        return await original(runner, Change(new=[replace(new, follows=None) for new in change.new]))

    return wrapped(Runner, "_commit", commit)


def beginning_before_the_commit() -> Context:
    async def commit(original: Any, runner: Runner, change: Change) -> Any:
        if change.begin:
            runner.store.runs.record(change)
            return []
        return await original(runner, change)

    return wrapped(Runner, "_commit", commit)


def overlapping() -> Context:
    return patch.object(run_queue, "admit", lambda *_, **__: Admission.START)


def retrying_for_ever() -> Context:
    return patch.object(followups, "may_retry", lambda *_: True)


def not_beginning_again() -> Context:
    return patch.object(followups, "begin_again", lambda _run: None)


def a_second_queue_for_a_job_that_comes_back() -> Context:
    def add(live: LiveJobs, job: LiveJob) -> None:
        live._jobs[job.id] = job

    return patch.object(LiveJobs, "add", add)


# The store


def moving_cursors_in_a_commit_of_their_own() -> Context:
    def record(original: Any, kept: Runs, change: Change) -> Future[list[RunId | None]]:
        if change.cursors and (change.new or change.skipped):
            original(kept, Change(expects=change.expects, cursors=change.cursors))
            change = replace(change, expects={}, cursors=())
        answer: Future[list[RunId | None]] = original(kept, change)
        return answer

    return wrapped(Runs, "record", record)


def answering_before_the_commit() -> Context:
    """Commit with the next batch."""

    def begin(connection: sqlite3.Connection, ops: Sequence[batch.Op]) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")
        original(connection, ops)

    def finish(original: Any, connection: sqlite3.Connection, before: int, committer: Any) -> None:
        if connection.total_changes == before:
            original(connection, before, committer)

    original = batch.begin

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(batch, "begin", begin), wrapped(batch, "finish", finish):
            yield

    return both()


def overlooking_a_rollback() -> Context:
    """Answer the ops of a transaction that SQLite has rolled back."""

    def try_together(
        connection: sqlite3.Connection, ops: Sequence[batch.Op], committer: batch.Committer | None
    ) -> Sequence[object] | None:
        before = connection.total_changes
        results = [batch.attempt(connection, op) for op in ops]
        try:
            if connection.in_transaction:
                batch.finish(connection, before, committer)
        except FAULTS:
            batch.roll_back(connection)
            return None
        return results

    return patch.object(batch, "try_together", try_together)


# Messages


def deleting_before_delivery() -> Context:
    async def attempt(original: Any, sender: OutboxSender, queue: TargetQueue, message: QueuedMessage) -> None:
        await sender.outbox.done(message.id)
        await original(sender, queue, message)

    return wrapped(OutboxSender, "_attempt", attempt)


def forgetting_an_attempt() -> Context:
    """Send again where the store refuses to note that a message has arrived."""

    async def step(original: Any, sender: OutboxSender, queue: TargetQueue) -> None:
        queue.attempted = None
        await original(sender, queue)

    return wrapped(OutboxSender, "_step", step)


def passing_what_waits() -> Context:
    def put_off(original: Any, outbox: Outbox, message: int, **named: Any) -> Any:
        return original(outbox, message, **{**named, "holds": False})

    return wrapped(Outbox, "put_off", put_off)


def a_new_id_for_each_attempt() -> Context:
    numbers = count()

    async def attempt(original: Any, sender: OutboxSender, queue: TargetQueue, message: QueuedMessage) -> None:
        await original(sender, queue, replace(message, delivery=f"{next(numbers)}"))

    return wrapped(OutboxSender, "_attempt", attempt)


# Incidents


def counting_what_is_retried() -> Context:
    def judged(original: Any, runner: Runner, job: Any, run: Run, ending: Any, _follow: Change) -> End:
        end: End = original(runner, job, run, ending, NOTHING)
        return end

    return wrapped(Runner, "_judged", judged)


def noting_incidents_later() -> Context:
    def note(watcher: AlertWatcher, event: SubjectEvent) -> None:
        watcher.incidents.note([event]).add_done_callback(partial(note_refused, "not noted"))

    def judge(original: Any, watcher: AlertWatcher, job: LiveJob, run: Run, end: End) -> None:
        if event := original(watcher, job, run, end):
            watcher.clock.call_later(0.5, lambda: note(watcher, event))

    return wrapped(AlertWatcher, "judge", judge)


def forgetting_who_was_notified() -> Context:
    def tell(original: Any, connection: sqlite3.Connection, name: str, planned: Any, now_ms: int) -> Any:
        return original(connection, name, replace(planned, told=()), now_ms)

    return wrapped(incidents, "tell", tell)


def notifying_nobody() -> Context:
    def tell(original: Any, connection: sqlite3.Connection, name: str, planned: Any, now_ms: int) -> Any:
        return original(connection, name, replace(planned, told=(), messages=()), now_ms)

    return wrapped(incidents, "tell", tell)


def calling_hooks_again() -> Context:
    return patch.object(runs, "tell_scripts", lambda *_: None)


# Locks, changes and tasks


@contextmanager
def leases_of_the_living_end() -> Iterator[None]:
    def is_held(_locks: Locks, _connection: object, held: Held, now_ms: int) -> bool:
        return held.expires_ms > now_ms

    with patch.object(Locks, "_is_held", is_held), patch.object(LockKeeper, "_renew", lambda _keeper: None):
        yield


def freeing_locks_of_the_dead() -> Context:
    return patch.object(Locks, "holders_among", lambda _locks, ended: list(ended))


def handing_out_a_change_again() -> Context:
    def execute_each(original: Any, connection: sqlite3.Connection, statement: str, rows: Any) -> None:
        if not statement.startswith("UPDATE wanted"):
            original(connection, statement, rows)

    return wrapped(runs, "execute_each", execute_each)


def the_latest_change_first() -> Context:
    def line_up(queue: RunQueue, run: Run) -> None:
        queue.waiting.insert(0, run)

    return patch.object(RunQueue, "line_up", line_up)


def performing_all_tasks_again() -> Context:
    async def take_over(_tasks: Tasks, _run: RunId, _plan: object) -> Sequence[Any]:
        return ()

    return patch.object(Tasks, "take_over", take_over)


def losing_what_a_task_has_ended() -> Context:
    """Answer before the end of a task is stored."""

    def add(original: Any, tasks: Tasks, run: RunId, rows: Any) -> Future[None]:
        original(tasks, run, rows)
        answer: Future[None] = Future()
        answer.set_result(None)
        return answer

    return wrapped(Tasks, "add", add)
