"""Which runs of workflows there are, and what belongs to each."""

from __future__ import annotations

import pytest

from spyweb.errors import Refused
from spyweb.model import RunId
from spyweb.ops.resources import NAMESPACE, Expected, Kept, to_value
from spyweb.store.model.entries import Put
from spyweb.subjects.workflows.service import WorkflowService
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.task_rows import begin_run, row


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(FakeClock())


async def keep(store: MemoryStore, target: str, run: RunId, expected: Expected, *, changed: bool) -> None:
    kept = Kept(module="file.copy", target=target, expected=expected, checksum="c")
    value = to_value(kept, 5, run, 1, changed=changed)
    await store.values.transform(NAMESPACE, f"prices:file.copy:{target}".encode(), lambda _: Put(value))


async def two_runs(store: MemoryStore) -> tuple[RunId, RunId]:
    """Two runs of a job, and one without tasks between them."""
    first, bare, second = [await begin_run(store) for _ in range(3)]
    await store.tasks.add(first, [row("x", 0), row("y", 1)])
    await store.tasks.add(second, [row("x", 0, workflow="build"), row("y", 1, workflow="deploy")])
    for target, run, expected, changed in (
        ("p", second, Expected.FILE, True),
        ("q", second, Expected.ABSENT, True),
        ("r", second, Expected.FILE, False),
        ("s", bare, Expected.FILE, True),
    ):
        await keep(store, target, run, expected, changed=changed)
    await store.values.transform(NAMESPACE, b"prices:bad", lambda _: Put(b"x"))
    return first, second


async def test_the_newest_runs_with_tasks_are_listed_with_their_workflows(store: MemoryStore) -> None:
    first, second = await two_runs(store)
    found = await WorkflowService(store).newest(10)
    assert [(each.id, each.name, each.status, each.resources) for each in found] == [
        (second, "build, deploy", "running", 3),
        (first, "prices", "running", 0),
    ]
    assert [each.id for each in await WorkflowService(store).newest(1)] == [second]


@pytest.mark.parametrize("which", ["3", "deploy", "prices"])
async def test_one_is_found_by_its_id_or_by_a_name(store: MemoryStore, which: str) -> None:
    _, second = await two_runs(store)
    detail = await WorkflowService(store).detail(which)
    assert detail.workflow.id == second
    assert [task.task for task in detail.tasks] == ["x", "y"]
    assert [(each.name, each.action, each.status) for each in detail.resources] == [
        ("p", "update", "success"),
        ("q", "delete", "success"),
        ("r", "noop", "success"),
    ]


@pytest.mark.parametrize("which", ["2", "99", "9" * 30, "nobody", "", "٣"])
async def test_what_is_none_is_refused(store: MemoryStore, which: str) -> None:
    await two_runs(store)
    with pytest.raises(Refused, match="there is no run of a workflow"):
        await WorkflowService(store).detail(which)
