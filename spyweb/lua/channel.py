"""The channel between the daemon and one run: it begins the run, has it end, and passes on what the run says.

The ops are answered in slots: one for the run's own, and one for each of its branches.
"""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import Callable

import structlog

from spyweb.clock import Clock
from spyweb.lua import answer
from spyweb.lua.branches import Branches
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.op_slot import OpSlot
from spyweb.lua.session import PendingRun
from spyweb.lua.wire import BeginFreshRun, BeginRun, CancelRun, Why

log = structlog.get_logger()

OVERDUE = 3.0  # seconds after a cancel; the worker says that the run is stuck after one: this is for one that can't


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
