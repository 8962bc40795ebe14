"""Build what answers clients: the service of a daemon, with each of its parts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import partial

from spyweb.alerts.watcher import AlertWatcher
from spyweb.daemon.runtime import JobRuntime
from spyweb.reload.swap import Reloader
from spyweb.runs.pings import PingRuns
from spyweb.scheduler.scheduler import Scheduler
from spyweb.service.access import AccessService
from spyweb.service.audit import AuditService
from spyweb.service.changes import ChangeHub
from spyweb.service.channels import ChannelService
from spyweb.service.daemon import DaemonService, find_troubles
from spyweb.service.drift import DriftService
from spyweb.service.event_sources import EventSources, FindTroubles
from spyweb.service.events import EventHub
from spyweb.service.hooks import HookService
from spyweb.service.incidents import IncidentService, StandingService
from spyweb.service.metrics import MetricsService
from spyweb.service.once import OnceService
from spyweb.service.readiness import ReadinessService
from spyweb.service.state import StateService
from spyweb.service.workflows import WorkflowService
from spyweb.views.health import Vitals

BOOT_BYTES = 4  # of the name of this start: numbers of an earlier one must not be believed


def build_service(
    runtime: JobRuntime,
    scheduler: Scheduler,
    reloader: Reloader,
    watcher: AlertWatcher,
    pings: PingRuns,
    vitals: Callable[[], Vitals],
) -> DaemonService:
    """Build the service; it answers from the parts as they are at each question."""
    store, live, clock, settings = runtime.store, runtime.live, runtime.clock, runtime.settings
    trail = AuditService(store.audit, clock)
    standing = StandingService(store.incidents, watcher, clock, settings.daemon.timezone)
    incidents = IncidentService(store.incidents, clock, watcher.wake, standing)
    events, changes = build_hubs(runtime, trail, incidents, partial(find_troubles, vitals, live))
    once = OnceService(store.requests, clock)
    return DaemonService(
        root=settings.root,
        timezone=settings.daemon.timezone,
        live=live,
        runner=runtime.runner,
        scheduler=scheduler,
        reloader=reloader,
        store=store,
        outbox=runtime.outbox_sender,
        own_sockets=runtime.own_sockets,
        access=AccessService(store.keys, clock, settings.server.api_key),
        workflows=WorkflowService(store),
        drift=DriftService(
            store=store,
            files=runtime.world.files,
            clock=clock,
            specs=lambda: {job.id: job.spec for job in live},
            broken=lambda: reloader.broken,
        ),
        trail=trail,
        state=StateService(store=store, clock=clock, limits=settings.state),
        metrics=MetricsService(
            live=live,
            counters=runtime.runner.counters,
            op_times=runtime.pool.op_times,
            op_counts=runtime.world.metrics,
            store=store,
            clock=clock,
            vitals=vitals,
            tallies=lambda: runtime.sending.tallies.among(reloader.settings.alerts.channels),
        ),
        readiness=ReadinessService(store=store, clock=clock, vitals=vitals),
        hooks=HookService(live=live, runner=runtime.runner, pings=pings, once=once, clock=clock, environ=os.environ),
        once=once,
        incidents=incidents,
        ack_links=runtime.sending.ack_links,
        channels=ChannelService(
            send_test=runtime.sending.delivery.try_out,
            store=store,
            settings=lambda: reloader.settings.alerts,
            tallies=runtime.sending.tallies.of,
            clock=clock,
        ),
        clock=clock,
        events=events,
        changes=changes,
        vitals=vitals,
        vms_of=runtime.pool.loads_of,
        is_traced=runtime.world.tracer is not None,
    )


def build_hubs(
    runtime: JobRuntime, trail: AuditService, incidents: IncidentService, troubles: FindTroubles
) -> tuple[EventHub, ChangeHub]:
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
    return events, ChangeHub(events=events, clock=clock, last_lines=sources.last_lines)
