"""The branches of one run as the daemon sees them: the functions of a script that are under way at once.

What a branch has taken in the world (its op, locks, a transaction) ends with it, before the run goes on.
"""

from __future__ import annotations

from asyncio import TaskGroup
from dataclasses import dataclass

from spyweb.clock import Clock, Handle
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.op_slot import OpSlot
from spyweb.lua.session import Lineage, PendingRun
from spyweb.lua.wire import BranchBegan, BranchEnded, EndBranch

# A VM has at most 1,000 in a run; by the other socket, big ops of newer ones may come before the end of older ones.
MOST_BRANCHES = 2_000


@dataclass(slots=True, eq=False)
class Branch:
    """One branch that has asked for an op, has a timeout, or is in or around such a one."""

    lineage: Lineage
    slot: OpSlot
    timer: Handle | None = None


class Branches:
    """Knows the branches of one run.  Raises ValueError for what no worker of ours says."""

    def __init__(self, pending: PendingRun, connection: WorkerConnection, clock: Clock, tasks: TaskGroup) -> None:
        self._pending = pending
        self._run = pending.request.run
        self._connection = connection
        self._clock = clock
        self._tasks = tasks
        self._branches: dict[int, Branch] = {}
        self._late: set[int] = set()  # numbers of ops of ended branches that have not come

    def slot_for(self, branch: int, number: int) -> OpSlot | None:
        """Return the slot for an op of a branch; None where the branch has ended, and the op comes too late."""
        if number in self._late:
            self._late.discard(number)
            return None
        return self._branch(branch).slot

    def began(self, told: BranchBegan) -> None:
        parent = self._branch(told.parent).lineage if told.parent else ()
        branch = self._branch(told.branch, parent)
        if told.timeout_ms and branch.timer is None:
            end = EndBranch(self._run, told.branch)
            branch.timer = self._clock.call_later(told.timeout_ms / 1000, lambda: self._connection.send(end))

    def ended(self, told: BranchEnded) -> None:
        branch = self._branches.pop(told.branch, None)
        if branch is not None:
            self._close(branch)
        if told.number > (branch.slot.number if branch else 0):
            self._late.add(told.number)
            _check_count(self._late)

    def drop_ops(self) -> None:
        """Cancel the ops under way, and the timeouts: the run is to end."""
        for branch in self._branches.values():
            _stop(branch)

    def close(self) -> None:
        for branch in self._branches.values():
            self._close(branch)
        self._branches.clear()

    def _branch(self, number: int, parent: Lineage = ()) -> Branch:
        branch = self._branches.get(number)
        if branch is None:
            lineage = (number, *parent)
            branch = Branch(lineage, OpSlot(self._pending, self._connection, self._tasks, lineage))
            self._branches[number] = branch
            _check_count(self._branches)
        return branch

    def _close(self, branch: Branch) -> None:
        _stop(branch)
        self._pending.host.end_branch(branch.lineage)


def _stop(branch: Branch) -> None:
    if branch.timer is not None:
        branch.timer.cancel()
    branch.slot.drop_op()


def _check_count(known: dict[int, Branch] | set[int]) -> None:
    if len(known) > MOST_BRANCHES:
        raise ValueError(f"over {MOST_BRANCHES} branches of one run")
