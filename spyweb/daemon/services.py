"""Build the services that answer clients; a new subject adds its services here."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack

from spyweb.alerts.watcher import AlertWatcher
from spyweb.cluster.node import ClusterNode
from spyweb.daemon.runtime import JobRuntime
from spyweb.daemon.subjects import ADDRESSES
from spyweb.events.changes import ChangeHub
from spyweb.events.hub import EventHub
from spyweb.reload.swap import Reloader
from spyweb.runs.elsewhere import Elsewhere
from spyweb.runs.pings import PingRuns
from spyweb.scheduler.scheduler import Scheduler
from spyweb.subjects.drift.service import DriftService
from spyweb.subjects.events.sources import EventSources
from spyweb.subjects.health.service import HealthService, MetricsService, ReadinessService
from spyweb.subjects.health.views import Vitals
from spyweb.subjects.hooks.service import HookService
from spyweb.subjects.incidents.service import ChannelService, IncidentService
from spyweb.subjects.jobs.pages import outlook_of
from spyweb.subjects.jobs.service import JobDetails, JobService, OverviewService
from spyweb.subjects.nodes.service import NodesService
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.runs.retries import RetryService
from spyweb.subjects.runs.service import OnceService, PastRunsService, RunService
from spyweb.subjects.state.service import StateService
from spyweb.subjects.status.service import StatusService
from spyweb.subjects.uptime.service import UptimeService
from spyweb.subjects.when.audit import RunAuditService
from spyweb.subjects.when.service import CalendarService, MaintenanceService
from spyweb.subjects.workflows.service import WorkflowService
from spyweb.web.access.audit import AuditService
from spyweb.web.access.forward import Forwarder, http_to_nodes
from spyweb.web.access.keys import AccessService
from spyweb.web.api.services import STARTING, Services

BOOT_BYTES = 4  # of the name of this start: event numbers of an earlier start are not valid


def build_services(
    runtime: JobRuntime,
    scheduler: Scheduler,
    reloader: Reloader,
    watcher: AlertWatcher,
    pings: PingRuns,
    vitals: Callable[[], Vitals],
) -> Services:
    """Build the services, which answer from the current state of these parts."""
    store, live, clock, settings = runtime.store, runtime.live, runtime.clock, runtime.settings
    root, timezone = settings.root, settings.daemon.timezone
    nodes = NodesService(live=live)
    jobs = JobService(
        root=root,
        timezone=timezone,
        live=live,
        scheduler=scheduler,
        reloader=reloader,
        clock=clock,
        vms_of=runtime.pool.loads_of,
        node_of=nodes.node_of,
    )
    health = HealthService(live=live, states=jobs.states, vitals=vitals, settings=lambda: reloader.settings)
    trail = AuditService(store.audit, clock)
    incidents = IncidentService(store.incidents, clock, watcher, timezone)
    # The sources of events are idle until a client or an open page listens.
    sources = EventSources(
        clock=clock,
        live=live,
        changes=store.events,
        outbox_sender=runtime.outbox_sender,
        job_logs=runtime.job_logs,
        trail=trail,
        incidents=incidents,
        troubles=health.troubles,
    )
    events = EventHub(clock, secrets.token_hex(BOOT_BYTES), sources.begin)
    overview = OverviewService(jobs=jobs, health=health, store=store)
    past, once = PastRunsService(root=root, live=live, store=store, clock=clock), OnceService(store.runs, clock)
    runs = RunService(runner=runtime.runner, past=past, once=once, is_traced=runtime.world.tracer is not None)
    readiness = ReadinessService(store=store, clock=clock, vitals=vitals)
    calendar = MaintenanceService(
        live=live, planned=lambda: reloader.maintenance, store=store.incidents, uptime=store.uptime, clock=clock
    )
    watcher.maintenance = calendar.windows
    return Services(
        health,
        trail,
        incidents,
        events,
        ChangeHub(events=events, clock=clock, last_lines=sources.last_lines),
        overview,
        past,
        readiness,
        jobs,
        runtime.outbox_sender,
        runtime.own_sockets,
        runtime.sending.ack_links,
        AccessService(store.keys, clock, settings.server.api_key),
        CalendarService(past=past),
        calendar,
        ChannelService(
            send_test=runtime.sending.delivery.try_out,
            store=store,
            settings=lambda: reloader.settings.alerts,
            tallies=runtime.sending.tallies.of,
            clock=clock,
        ),
        DriftService(
            store=store,
            files=runtime.world.files,
            clock=clock,
            specs=lambda: {job.id: job.spec for job in live},
            broken=lambda: reloader.broken,
            is_elsewhere=lambda job: live.find(job) is not None and not live.is_mine(job),
        ),
        HookService(live=live, runner=runtime.runner, pings=pings, once=once, clock=clock, environ=os.environ),
        JobDetails(jobs=jobs, past_runs=store.past_runs, overview=overview),
        nodes,
        MetricsService(
            live=live,
            counters=runtime.runner.counters,
            op_times=runtime.pool.op_times,
            op_counts=runtime.world.metrics,
            store=store,
            clock=clock,
            vitals=vitals,
            tallies=lambda: runtime.sending.tallies.among(reloader.settings.alerts.channels),
        ),
        RecordSearch(records=store.records, live=live, clock=clock),
        runs,
        RunAuditService(store=store, clock=clock, live=live),
        RetryService(runs=runs, sources=runtime.world.sources),
        StateService(store=store, clock=clock, limits=settings.state),
        StatusService(lambda: reloader.settings.status_page, live, store, calendar.windows, clock, root, timezone),
        UptimeService(store=store.uptime, clock=clock),
        WorkflowService(store),
        addresses=ADDRESSES,
        catalogue=jobs,
        clock=clock,
        timezone=timezone,
        outlook=outlook_of(overview, health, incidents),
        is_starting=lambda: readiness.stage == STARTING,
    )


async def answer_for_all(stack: AsyncExitStack, runtime: JobRuntime, services: Services, node: ClusterNode) -> None:
    """Have this node show the jobs of the others, and pass on to them what only they can do."""
    store, live, clock, nodes = runtime.store, runtime.live, runtime.clock, services[NodesService]
    nodes.cluster = node
    elsewhere = Elsewhere(live=live, store=store, turn=node.work.turn, tasks=runtime.tasks, clock=clock)
    stack.callback(runtime.tasks.create_task(elsewhere.keep_up(), name="follow other nodes").cancel)
    services.forwarder = Forwarder(
        me=node.nodes.me,
        owner_of=nodes.owner_of,
        live=live,
        find_run=store.past_runs.find,
        look=elsewhere.look,
        access=services[AccessService],
        key=await store.keys.link_key(),
        http=await stack.enter_async_context(http_to_nodes()),
        clock=clock,
    )
