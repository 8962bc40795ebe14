"""One attempt: a run in its job's VM, and what is needed for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from spyweb.clock import Clock
from spyweb.errors import PoolError, StoreError
from spyweb.jobs.aftermath import may_retry
from spyweb.jobs.cause import conditions_of, event_of, told_to_lua
from spyweb.jobs.live import LiveJob, LiveJobs
from spyweb.jobs.records import ctx_of
from spyweb.lua.session import Host, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, Outcome, Run, RunId
from spyweb.store.protocol import ChangeEvent, Events, Runs

log = structlog.get_logger()

STORE_PATIENCE = 5.0  # seconds before the store is asked again what it refused


class Machine(Protocol):
    """What steps VMs (lua/pool.py)."""

    async def run(self, request: Request, host: Host) -> Ending: ...

    def cancel(self, run: RunId, why: Why) -> None: ...


class CountingHost(Host, Protocol):
    @property
    def storage_errors(self) -> int: ...


class Observer(Protocol):
    """Who watches one run, line by line."""

    def log(self, level: str, text: bytes) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None: ...


HostFor = Callable[[LiveJob, Run, Observer | None], CountingHost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What runs need; all of it is built by daemon.py."""

    machine: Machine
    runs: Runs
    events: Events
    live: LiveJobs
    clock: Clock
    host_for: HostFor
    run_ended: Callable[[RunId], None]  # told of every run whose end is committed
    random: Callable[[], float]


async def attempt(around: Surroundings, job: LiveJob, run: Run, host: Host, *, once: bool = False) -> Ending:
    """Run it in its job's VM; how it ended, whatever went wrong.  `once`: no attempt follows, come what may."""
    request = Request(
        run=run.id,
        code=job.code,
        timeout_ms=job.spec.timeout_ms,
        cpu_limit_ms=job.spec.cpu_limit_ms,
        arguments=(ctx_of(run), may_retry(run, job.spec.retry) and not (once or job.gone)),
    )
    event_id = event_of(run.trigger)
    if event_id is not None:
        event = await find(around, event_id)
        if event is None:
            return failed("the change that started it is not stored any more")
        request = with_event(request, run, event)
    try:
        return await around.machine.run(request, host)
    except PoolError as error:
        return failed(str(error))


def failed(reason: str) -> Ending:
    return Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=reason)


def with_event(request: Request, run: Run, event: ChangeEvent) -> Request:
    added = (told_to_lua(event), conditions_of(run.trigger))
    return replace(request, procedure="trigger", arguments=(*request.arguments, *added))


async def find(around: Surroundings, event: int) -> ChangeEvent | None:
    """Ask however long the store refuses: what has been started can't be forgotten."""
    while True:
        try:
            return await around.events.find(event)
        except StoreError as error:
            log.error("a change could not be read yet", reason=str(error), again_in_s=STORE_PATIENCE)
            await around.clock.sleep(STORE_PATIENCE)
