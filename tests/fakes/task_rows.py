"""Ends of tasks, as tests make them and read them back."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from spyweb.model import RunId, TaskRow, TaskStatus, Trigger
from spyweb.store.model.runs import Change, NewRun
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import PRICES, make_run

SUCCESS, FAILED, SKIPPED = TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.SKIPPED
NOW_MS = 1_767_225_600_000


def row(name: str, ordinal: int = 0, status: TaskStatus = SUCCESS, **changes: object) -> TaskRow:
    made = TaskRow(
        ordinal=ordinal, workflow="", name=name, status=status, attempts=1, started_ms=NOW_MS, ended_ms=NOW_MS + 5
    )
    return structs.replace(made, **changes)


def story(rows: Sequence[TaskRow]) -> list[str]:
    """`build success`, in the order of their ordinals."""
    return [f"{each.name} {each.status}" for each in rows]


async def told(store: Store, run: RunId) -> list[str]:
    return story((await store.tasks.of_runs([run])).get(run, ()))


async def begin_run(
    store: Store, resumes: RunId | None = None, retry_of: RunId | None = None, dry_run: bool = False, **changes: object
) -> RunId:
    """Record a run of PRICES, which may resume or retry an earlier one."""
    kind = "manual" if resumes is None and retry_of is None else "retry"
    trigger = Trigger(type=kind, of=resumes, resumes=resumes, retry_of=retry_of, dry_run=dry_run)
    new: NewRun = structs.replace(make_run(PRICES, due_ms=None), trigger=trigger, **changes)
    (run,) = await store.runs.record(Change(new=[new]))
    assert run is not None
    return run
