"""Runs of jobs with tasks, as `spyweb state workflow` shows them: in the words of sloth-runner."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from spyweb.model import JobId, Run, RunId, RunState
from spyweb.views.runs import TaskView, copied, duration_ms


class WorkflowView(Struct, frozen=True, kw_only=True):
    """One run of a job with tasks."""

    id: RunId
    name: str  # of its workflows; of the job where its tasks belong to none
    job: JobId
    version: int  # the loaded version of the job
    status: str  # pending, running, success, failed, ...
    started_ms: int | None
    duration_ms: int | None
    resources: int  # whose latest change is by this run
    error: str = ""


class ResourceView(Struct, frozen=True, kw_only=True):
    """One resource that a run keeps in a state."""

    type: str  # file.copy, exec.run, ...
    name: str
    action: str  # update, delete, or noop where nothing had to change
    status: str = "success"  # the only status that is recorded
    checksum: str = ""
    created_ms: int


class WorkflowDetail(Struct, frozen=True, kw_only=True):
    """One run of a job with tasks, with its tasks and resources."""

    workflow: WorkflowView
    tasks: Sequence[TaskView]
    resources: Sequence[ResourceView]


def view_workflow(run: Run, names: Sequence[str], resources: int) -> WorkflowView:
    state = "pending" if run.state is RunState.WAITING else run.state.value
    return copied(
        WorkflowView,
        run,
        name=", ".join(dict.fromkeys(name for name in names if name)) or run.job,
        version=run.generation,
        status=run.outcome.value if run.outcome else state,
        duration_ms=duration_ms(run),
        resources=resources,
        error=run.reason,
    )
