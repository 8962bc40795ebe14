"""The channel between the daemon and one run: it begins the run, has it end, and passes on what the run says.

The ops are answered in slots: one for the run's own, and one for each of its branches, which are the functions of a
script that are under way at once.  What a branch has taken in the world (its op, locks, a transaction) ends with it,
before the run goes on.
"""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import Callable

import structlog
from msgspec import Struct

from spyweb.clock import Clock, Handle
from spyweb.lua import answer
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.op_slot import OpSlot
from spyweb.lua.session import Lineage, PendingRun
from spyweb.lua.wire import BeginFreshRun, BeginRun, BranchBegan, BranchEnded, CancelRun, EndBranch, Why

log = structlog.get_logger()

OVERDUE = 3.0  # seconds after a cancel; the worker says that the run is stuck after one: this is for one that can't
# A VM has at most 1,000 in a run; by the other socket, big ops of newer ones may come before the end of older ones.
MOST_BRANCHES = 2_000


class Branch(Struct, eq=False):
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


class RunChannel:
    """One run under way in a worker.

    `overdue` is called when the run was told to end and did not.
    """

    def __init__(
        self,
        pending: PendingRun,
        vm: int,
        *,
        connection: WorkerConnection,
        clock: Clock,
        tasks: TaskGroup,
        overdue: Callable[[RunChannel], None],
    ) -> None:
        self.pending = pending
        self.vm = vm
        self.why = Why.NOTHING  # why it has been told to end
        self.run = pending.request.run
        self._host = pending.host
        self._connection = connection
        self._clock = clock
        self._tasks = tasks
        self._overdue = overdue
        self._timer = clock.call_later(pending.request.timeout_ms / 1000, lambda: self.cancel(Why.TIMEOUT))
        self.own = OpSlot(pending, connection, tasks)  # for the ops of no branch
        self._branches: Branches | None = None

    def begin(self, template: int | None = None) -> None:
        """Tell the worker to begin the run, in a VM that it has or in one that it makes from this template."""
        request = self.pending.request
        arguments = answer.pack(request.arguments)
        message: BeginRun | BeginFreshRun
        if template is None:
            message = BeginRun(request.run, self.vm, request.procedure, arguments, request.cpu_limit_ms)
        else:
            message = BeginFreshRun(request.run, self.vm, template, request.procedure, arguments, request.cpu_limit_ms)
        self._connection.send_sized(message, len(arguments))

    def cancel(self, why: Why) -> None:
        """Tell the run to end for this reason.  Only the first reason counts."""
        if self.why is not Why.NOTHING:
            return
        self.why = why
        self._timer.cancel()
        self._timer = self._clock.call_later(OVERDUE, lambda: self._overdue(self))
        self.own.drop_op()
        if self._branches is not None:
            self._branches.drop_ops()
        self._connection.send(CancelRun(self.run, int(why)))

    def close(self) -> None:
        """Stop waiting for answers and timers: the run has ended."""
        self._timer.cancel()
        self.own.drop_op()
        if self._branches is not None:
            self._branches.close()

    @property
    def branches(self) -> Branches:
        if self._branches is None:
            self._branches = Branches(self.pending, self._connection, self._clock, self._tasks)
        return self._branches

    def log(self, level: str, text: bytes) -> None:
        try:
            self._host.log(level, text)
        except Exception:  # one op: a bug in it costs a log line, not the worker
            log.exception("a log line was lost", run=self.run, job=self.pending.request.code.job)
