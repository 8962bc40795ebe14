"""One attempt: a run in its job's VM, and what is needed for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

import structlog
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import STORE_REFUSED, PoolError
from spyweb.logs.refusals import tell_refusal
from spyweb.lua.endings import never_begun
from spyweb.lua.session import Host, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, JobId, Outcome, Run, RunId, TriggerType
from spyweb.runs.followups import may_retry
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import ctx_of
from spyweb.runs.state_trigger import conditions_of, event_of, told_to_lua
from spyweb.stalls import StallRecorder
from spyweb.store.protocol import ChangeEvent, Events, Runs

log = structlog.get_logger()

DEBUG = "debug"  # in a trigger: of a monitor job's run, show what it finds and keep nothing of it
STORE_PATIENCE = 5.0  # seconds before the store is asked again what it refused


class Machine(Protocol):
    """What steps VMs (lua/pool.py)."""

    async def run(self, request: Request, host: Host) -> Ending: ...

    def cancel(self, run: RunId, why: Why) -> None: ...


class CountingHost(Host, Protocol):
    @property
    def storage_errors(self) -> int: ...

    @property
    def sql_cpu_ms(self) -> int: ...


class Monitors(Protocol):
    """What carries out the runs of monitor jobs (jobs/monitor/)."""

    async def iterate(self, job: LiveJob, run: Run, host: CountingHost, ctx: Mapping[str, object]) -> Ending: ...

    def cancel(self, run: RunId, why: Why) -> None: ...

    def forget(self, job: JobId) -> None: ...


class Observer(Protocol):
    """Who watches one run, line by line."""

    def log(self, level: str, text: bytes) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None: ...


Told = Mapping[RunId, Why]  # runs that are to end, also those that the machine does not know yet
HostFor = Callable[[LiveJob, Run, Observer | None], CountingHost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What runs need; all of it is built by daemon.py."""

    machine: Machine
    monitors: Monitors
    runs: Runs
    events: Events
    live: LiveJobs
    clock: Clock
    host_for: HostFor
    run_ended: Callable[[RunId], None]  # told of every run whose end is committed
    random: Callable[[], float]
    stalls: StallRecorder = field(default_factory=StallRecorder)


async def attempt(
    around: Surroundings, job: LiveJob, run: Run, host: CountingHost, told: Told, *, once: bool = False
) -> Ending:
    """Run it; how it ended, whatever went wrong.  `once`: no attempt follows, come what may."""
    refusal = around.stalls.refusal_of(job.id, job.code.generation)
    if refusal:
        return failed(refusal)
    event_id, event = event_of(run.trigger), None
    if event_id is not None and run.id not in told:
        event = await find(around, event_id)
    if run.id in told:
        return never_begun(told[run.id])
    if event_id is not None and event is None:
        return failed("the change that started it is not stored any more")
    if job.spec.monitor:
        return await around.monitors.iterate(job, run, host, monitor_ctx(run, event))
    request = script_request(job, run, is_last=once or job.gone)
    try:
        return await around.machine.run(with_event(request, run, event) if event else request, host)
    except PoolError as error:
        return failed(str(error))


def cancel(around: Surroundings, run: RunId, why: Why) -> None:
    """Have it end; a run that is not known has ended already."""
    around.machine.cancel(run, why)
    around.monitors.cancel(run, why)


def script_request(job: LiveJob, run: Run, *, is_last: bool) -> Request:
    return Request(
        run=run.id,
        code=job.code,
        timeout_ms=job.spec.timeout_ms,
        cpu_limit_ms=job.spec.cpu_limit_ms,
        arguments=(ctx_of(run), may_retry(run, job.spec.retry) and not is_last),
    )


def monitor_ctx(run: Run, event: ChangeEvent | None) -> Mapping[str, object]:
    """What the cycles of a run begin with; a script's VM puts the event in by itself (trigger.lua)."""
    ctx = ctx_of(run)
    if event is None:
        return ctx
    told: object = told_to_lua(event)
    if run.trigger.get("type") == TriggerType.RETRY:
        told = {**cast("Mapping[str, object]", ctx["trigger"]), "event": told}
    return {**ctx, "trigger": told}


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
        except STORE_REFUSED as error:
            tell_refusal("a change could not be read yet", error, again_in_s=STORE_PATIENCE)
            await around.clock.sleep(STORE_PATIENCE)
