"""A daemon's service over jobs on a fake clock, and the state of the project's files as a test wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from spyweb.alerts.ack_links import AckLinks
from spyweb.model import Ending, JobId, RunId
from spyweb.ops.network.address_check import OwnSockets
from spyweb.outbox.sender import OutboxSender
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.service.access import AccessService
from spyweb.service.audit import AuditService
from spyweb.service.changes import ChangeHub
from spyweb.service.daemon import DaemonService
from spyweb.service.events import EventHub
from spyweb.service.incidents import IncidentService
from spyweb.service.once import OnceService
from spyweb.service.workflows import WorkflowService
from spyweb.settings.alerts import AlertSettings
from tests.fakes.daemon_service import (
    FakeReloader,
    make_channels,
    make_metrics,
    make_readiness,
    make_state,
    make_vitals,
    no_lines,
)
from tests.fakes.drifting import make_drift
from tests.fakes.harness import Harness, harness
from tests.fakes.hooks import make_hooks
from tests.fakes.listening import BOOT, FakeSources


class FakeOutboxSender(OutboxSender):
    def __init__(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Served:
    t: Harness
    root: Path
    reloader: FakeReloader
    service: DaemonService

    def job(self, job: JobId) -> LiveJob:
        found = self.t.live.find(job)
        assert found is not None
        return found

    async def start(self, job: JobId) -> RunId:
        """Start a run by hand."""
        (run,) = await self.t.runner.start(self.job(job), [by_hand()])
        await self.t.clock.turn()
        assert run is not None
        return run

    async def run(self, job: JobId, *endings: Ending) -> None:
        """Let a job run by hand, to these endings."""
        self.t.pool.endings[job] = list(endings)
        for _ in endings:
            await self.start(job)


@asynccontextmanager
async def serving(root: Path, *jobs: LiveJob) -> AsyncIterator[Served]:
    async with harness() as t:
        reloader = FakeReloader(root)
        reloader.broken, reloader.warnings = {}, ()
        events = EventHub(t.clock, BOOT, FakeSources().begin)
        once = OnceService(t.store.requests, t.clock)
        service = DaemonService(
            root=root,
            timezone="UTC",
            live=t.live,
            runner=t.runner,
            scheduler=t.scheduler,
            reloader=reloader,
            store=t.store,
            outbox=FakeOutboxSender(),
            state=make_state(t.clock),
            own_sockets=OwnSockets(),
            access=AccessService(t.store.keys, t.clock),
            trail=AuditService(t.store.audit, t.clock),
            metrics=make_metrics(),
            readiness=make_readiness(),
            workflows=WorkflowService(t.store),
            hooks=make_hooks(t, once),
            once=once,
            incidents=IncidentService(t.store.incidents, t.clock),
            ack_links=AckLinks("", AlertSettings),
            channels=make_channels(t.store, t.clock),
            drift=make_drift(t.store, t.clock, {}),
            clock=t.clock,
            events=events,
            changes=ChangeHub(events=events, clock=t.clock, last_lines=no_lines),
            vitals=make_vitals,
            vms_of=lambda job: len(job),
        )
        await t.settle(*jobs)
        yield Served(t=t, root=root, reloader=reloader, service=service)
