"""Serve the project's own server on a free loopback port while its tests run."""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from msgspec import Struct, structs

from spyweb.clock import Clock
from spyweb.daemon.testing import WorldFactory
from spyweb.endpoints.endpoints import Endpoints, ServerVersion
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host
from spyweb.model import JobId, JobSpec, RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network.client import open_client
from spyweb.ops.world import Call, JobLog, World, unheard
from spyweb.permissions.policy import Policy
from spyweb.specs.discover import scan
from spyweb.specs.server_file import FOLDER, SERVER, code_of_server
from spyweb.store.sqlite.records import Records
from spyweb.testing.run import SuiteEnvironment
from spyweb.testing.suites import Suite
from spyweb.views.jobs import JobView, find_job, unknown_job, view_job
from spyweb.views.records import RecordView, view_record
from spyweb.web.app import Site, project_app
from spyweb.web.serve import serve_app
from spyweb.web.ui import FOLDER as UI

LOOPBACK = "127.0.0.1"
SPARES = 2  # VMs that are ready for the next requests


class HandlerLog(Struct):
    """Hands what handlers log to the test that runs now."""

    log: JobLog = unheard

    def note_line(self, level: str, text: bytes) -> None:
        self.log(level, text)

    def note_failure(self, asked: str, reason: str) -> None:
        self.log("error", f"{asked}: {reason}".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCatalogue:
    """Serves the built-in addresses under test: the project's jobs, none of which runs, and the tests' records."""

    specs: Sequence[JobSpec]
    kept: Records

    def find(self, name_or_id: str) -> JobId | None:
        return find_job(self.specs, name_or_id)

    def no_such_job(self, name_or_id: str) -> str:
        return unknown_job([spec.id for spec in self.specs], name_or_id)

    async def all_jobs(self) -> list[JobView]:
        return sorted(map(view_job, self.specs), key=lambda view: view.id)

    async def records(self, job: JobId | None, *, limit: int, before_ns: int | None) -> list[RecordView]:
        return [view_record(record) for record in await self.kept.list(job, limit=limit, before_ns=before_ns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEnvironment:
    """Gives all tests and handlers of the server one database."""

    world: World
    policy: Policy
    port: int
    is_virtual: bool
    handler_log: HandlerLog = field(default_factory=HandlerLog)

    @property
    def options(self) -> Mapping[str, object]:
        return {"virtual_time": self.is_virtual, "routes": True, "globals": {"SERVER_PORT": self.port}}

    @asynccontextmanager
    async def host(self, run: RunId, log: JobLog) -> AsyncIterator[Host]:
        self.handler_log.log = log
        try:
            yield host_in(self.world, self.policy, run, log)
        finally:
            self.world.call_ended(run)


@asynccontextmanager
async def open_server_environment(
    suite: Suite, pool: Pool, worlds: WorldFactory, clock: Clock, *, is_virtual: bool
) -> AsyncIterator[SuiteEnvironment]:
    """Serve the suite's server.  Raises ScriptError when its code does not compile, Refused when there is no port."""
    assert suite.server is not None
    code = code_of_server(suite.server, 1, policy=suite.policy)
    await pool.check(code)
    settings = replace(worlds.settings.http, deny_private=False)  # the server under test is on this machine
    async with worlds.open(clock) as world, open_client(settings, worlds.clock) as http:
        handler_log, own = HandlerLog(), structs.replace(world, http=http)
        scanned = await asyncio.to_thread(scan, worlds.settings.root, worlds.settings)
        catalogue = ProjectCatalogue(specs=[file.spec for file in scanned.jobs.values()], kept=own.store.records)
        async with open_endpoints(pool, own, handler_log, (code, suite.policy), worlds.clock) as endpoints:
            app = project_app(catalogue, Site(endpoints=endpoints, ui=worlds.settings.root / UI))
            async with serve_app(app, host=LOOPBACK, port=0) as listening:
                yield ServerEnvironment(
                    world=own, policy=suite.policy, port=listening.port, is_virtual=is_virtual, handler_log=handler_log
                )


@asynccontextmanager
async def open_endpoints(
    pool: Pool, world: World, handler_log: HandlerLog, version: tuple[Code, Policy], clock: Clock
) -> AsyncIterator[Endpoints]:
    code, policy = version
    async with TaskGroup() as tasks:
        endpoints = Endpoints(
            pool=pool,
            clock=clock,
            tasks=tasks,
            host_for=lambda _, run: host_in(world, policy, run, handler_log.note_line),
            run_ended=world.call_ended,
            note_failure=handler_log.note_failure,
        )
        endpoints.version = ServerVersion(codes=[code])
        pool.keep_spares(code, SPARES)
        try:
            yield endpoints
        finally:
            await endpoints.close(0)
            pool.retire(SERVER, code.generation + 1)


def host_in(world: World, policy: Policy, run: RunId, log: JobLog) -> Host:
    return OpDispatcher(Call(world=world, job=SERVER, run=run, generation=1, folder=FOLDER, log=log, policy=policy))
