"""Dispatches the ops of one run: calls and counts them, and turns their exceptions into errors for the script.

Every effect of a job passes through here.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Sequence
from functools import lru_cache, partial
from typing import cast

import structlog
from msgspec.structs import replace

from spyweb.errors import OpError, SpywebError
from spyweb.lua.session import NOTHING, Lineage, Results, StoreAnswer, Unstarted
from spyweb.model import BranchId
from spyweb.ops import tasks
from spyweb.ops.op import CATALOGUE, Operation
from spyweb.ops.world import Call
from spyweb.ownership import NO_TRUST
from spyweb.stalls import Work, work_for
from spyweb.tracing.span import TraceSpan, part

log = structlog.get_logger()


class OpDispatcher:
    """The Host of one run."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self._metrics = call.world.metrics
        self._stalls = call.world.stalls
        self._is_owned = call.is_recorded  # a run that another node may take over, unlike a request or a test of a file
        self._branch_calls: dict[Lineage, Call] = {}
        self.trace = call.trace
        is_usual = call.audit is None and not call.is_dry
        self._free = free_ops(call.policy.restricted) if is_usual else frozenset[str]()

    def log(self, level: str, text: bytes) -> None:
        if level == "task":
            if (event := tasks.begun(self.call, text)) is not None:
                self.call.tell_task(event)
        elif level == "env":
            if self.call.audit is not None:
                self.call.audit.note("variable", text.decode("utf-8", "replace"))
        else:
            self.call.log(level, text)

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Results]:
        """Begin an op.  Never raises: an error is in the future."""
        if self.trace is not None and name in CATALOGUE:
            return Unstarted(partial(self._traced, self.trace, name, arguments, lineage))
        return self._op(name, arguments, lineage)

    async def _traced(self, parent: TraceSpan, name: str, arguments: Sequence[object], lineage: Lineage) -> Results:
        with part(parent, name):
            return await self._op(name, arguments, lineage)

    def _op(self, name: str, arguments: Sequence[object], lineage: Lineage) -> Awaitable[Results]:
        operation = CATALOGUE.get(name)
        if operation is None:
            return _failed(OpError(f"there is no op named '{name}'"))
        self._metrics.calls[name] += 1
        if self._is_owned and not self.call.world.ownership.is_trusted:
            return _failed(self._refusal(operation, OpError(f"{name}: {NO_TRUST}")))
        started = self._stalls.wall()
        try:
            check = None if name in self._free else operation.check_for(self.call)
            outcome = operation.begin(self._call_of(lineage) if lineage else self.call, arguments, check)
        except Exception as error:  # noqa: BLE001 - one op's boundary, as above
            return _failed(self._refusal(operation, error))
        finally:
            if self._stalls.is_stall(started):
                self._stalls.record(self._work(name), started)
        if isinstance(outcome, (StoreAnswer, Future)):
            return outcome
        if not isinstance(outcome, Unstarted):
            return _failed(self._refusal(operation, TypeError(f"it returned a {type(outcome).__name__}")))
        return Unstarted(partial(self._finish, operation, outcome))

    def end_branch(self, lineage: Lineage) -> None:
        if self._branch_calls.pop(lineage, None):  # else it has asked for nothing
            self.call.world.branch_ended(BranchId(self.call.run, lineage[0]))

    def _call_of(self, lineage: Lineage) -> Call:
        call = self._branch_calls.get(lineage)
        if call is None:
            call = self._branch_calls[lineage] = replace(self.call, lineage=lineage)
        return call

    async def _finish(self, operation: Operation, outcome: Awaitable[object]) -> Results:
        work_for(self._work(operation.name))
        try:
            value = await outcome
        except Exception as error:  # noqa: BLE001 - one op's boundary, as above
            raise self._refusal(operation, error) from None
        if operation.gives_nothing:
            return NOTHING
        return cast(Results, value) if isinstance(value, tuple) else (value,)

    def _work(self, name: str) -> Work:
        return Work(f"op {name}", self.call.job, self.call.run, self.call.generation)

    def _refusal(self, operation: Operation, error: Exception) -> OpError:
        """Return the error that the script gets."""
        self._metrics.errors[operation.name] += 1
        if isinstance(error, OpError):
            return error
        if isinstance(error, SpywebError):
            return OpError(f"{operation.name}: {error}")
        log.error("op.bug", op=operation.name, job=self.call.job, run=self.call.run, exc_info=error)
        return OpError(f"{operation.name} failed inside spyweb; its log has the details")


@lru_cache(maxsize=256)
def free_ops(restricted: frozenset[str]) -> frozenset[str]:
    """Return the ops that a policy with these restricted keys permits with any arguments."""
    return frozenset(
        name
        for name, operation in CATALOGUE.items()
        if operation.needs is None or operation.needs.key not in restricted
    )


def _failed(error: OpError) -> Future[Results]:
    future: Future[Results] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
