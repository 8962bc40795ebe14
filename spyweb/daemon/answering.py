"""Build what answers clients: the service of a daemon, with each of its parts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from spyweb.alerts.watcher import AlertWatcher
from spyweb.daemon.runtime import JobRuntime
from spyweb.reload.swap import Reloader
from spyweb.runs.pings import PingRuns
from spyweb.scheduler.scheduler import Scheduler
from spyweb.service.access import AccessService
from spyweb.service.audit import AuditService
from spyweb.service.channels import ChannelService
from spyweb.service.daemon import DaemonService, find_troubles
from spyweb.service.drift import DriftService
from spyweb.service.event_sources import EventSources, FindTroubles
from spyweb.service.events import EventHub
from spyweb.service.hooks import HookService
from spyweb.service.incidents import IncidentService, StandingService
from spyweb.service.metrics import MetricsService
from spyweb.service.once import OnceService
from spyweb.service.page_hub import PageHub
from spyweb.service.readiness import ReadinessService
from spyweb.service.state import StateService
from spyweb.service.workflows import WorkflowService
from spyweb.views.health import Vitals

BOOT_BYTES = 4  # of the name of this start: numbers of an earlier one must not be believed


class ServedParts(NamedTuple):
    """The parts of a daemon that clients ask about."""

    root: Path
    runtime: JobRuntime
    scheduler: Scheduler
    reloader: Reloader
    watcher: AlertWatcher
    pings: PingRuns
    vitals: Callable[[], Vitals]


def build_service(parts: ServedParts) -> DaemonService:
    """Build the service; it answers from the parts as they are at each question."""
    runtime, vitals = parts.runtime, parts.vitals
    store, live, clock, settings = runtime.store, runtime.live, runtime.clock, runtime.settings
    trail = AuditService(store.audit, clock)
    incidents = build_incidents(parts)
    events, pages = build_hubs(runtime, trail, incidents, partial(find_troubles, vitals, live))
    once = OnceService(store.requests, clock)
    return DaemonService(
        root=parts.root,
        timezone=settings.daemon.timezone,
        live=live,
        runner=runtime.runner,
        scheduler=parts.scheduler,
        reloader=parts.reloader,
        stored_runs=store.runs,
        stored_tasks=store.tasks,
        stored_records=store.records,
        outbox_sender=runtime.outbox_sender,
        own_sockets=runtime.own_sockets,
        access=AccessService(store.keys, clock, settings.server.api_key),
        workflow_runs=WorkflowService(store),
        drift=build_drift(parts),
        trail=trail,
        state=StateService(store=store, clock=clock, limits=settings.state),
        metrics=build_metrics(parts),
        readiness=ReadinessService(store=store, clock=clock, vitals=vitals),
        hooks=HookService(
            live=live, runner=runtime.runner, pings=parts.pings, once=once, clock=clock, environ=os.environ
        ),
        once=once,
        incidents=incidents,
        ack_links=runtime.sending.ack_links,
        channels=build_channels(parts),
        clock=clock,
        events=events,
        pages=pages,
        vitals=vitals,
        vms_of=runtime.pool.loads_of,
        is_traced=runtime.world.tracer is not None,
        past_runs=store.past_runs,
    )


def build_incidents(parts: ServedParts) -> IncidentService:
    runtime, watcher = parts.runtime, parts.watcher
    incidents, clock = runtime.store.incidents, runtime.clock
    standing = StandingService(incidents, watcher, clock, runtime.settings.daemon.timezone)
    return IncidentService(incidents, clock, watcher.wake, standing)


def build_drift(parts: ServedParts) -> DriftService:
    runtime, reloader = parts.runtime, parts.reloader
    return DriftService(
        store=runtime.store,
        files=runtime.world.files,
        clock=runtime.clock,
        specs=lambda: {job.id: job.spec for job in runtime.live},
        broken=lambda: reloader.broken,
    )


def build_metrics(parts: ServedParts) -> MetricsService:
    runtime, reloader = parts.runtime, parts.reloader
    return MetricsService(
        live=runtime.live,
        counters=runtime.runner.counters,
        op_times=runtime.pool.op_times,
        op_counts=runtime.world.metrics,
        store=runtime.store,
        clock=runtime.clock,
        vitals=parts.vitals,
        tallies=lambda: runtime.sending.tallies.among(reloader.settings.alerts.channels),
    )


def build_channels(parts: ServedParts) -> ChannelService:
    runtime, reloader = parts.runtime, parts.reloader
    return ChannelService(
        try_out=runtime.sending.delivery.try_out,
        store=runtime.store,
        settings=lambda: reloader.settings.alerts,
        tallies=runtime.sending.tallies.of,
        clock=runtime.clock,
    )


def build_hubs(
    runtime: JobRuntime, trail: AuditService, incidents: IncidentService, troubles: FindTroubles
) -> tuple[EventHub, PageHub]:
    """Build what tells clients and open pages of what happens; both rest until somebody listens."""
    clock = runtime.clock
    sources = EventSources(
        clock=clock,
        live=runtime.live,
        changes=runtime.store.events,
        outbox_sender=runtime.outbox_sender,
        job_logs=runtime.job_logs,
        trail=trail,
        incidents=incidents,
        troubles=troubles,
    )
    events = EventHub(clock, secrets.token_hex(BOOT_BYTES), sources.begin)
    return events, PageHub(events=events, clock=clock, tasks=runtime.tasks, last_lines=sources.last_lines)
