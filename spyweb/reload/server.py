"""The newest version of server/init.lua that compiles, in place of the older one: looked at, proved, swapped.

A save that does not compile leaves the older version answering, and its problem on show.  Before there is any version,
it makes every request fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from spyweb.clock import Clock
from spyweb.endpoints.endpoints import Endpoints, Version
from spyweb.errors import Problem
from spyweb.lua.session import Code
from spyweb.model import JobId
from spyweb.reload.modules import Modules, module_codes
from spyweb.reload.swap import PATIENCE, RESCAN_SECONDS, judge
from spyweb.specs.server_file import INIT, SERVER, ServerFile, code_of_server, find_server

log = structlog.get_logger()

SPARES = 4  # VMs that each worker has ready for the next requests; more gained nothing


class Machine(Protocol):
    """What compiles, and keeps VMs (lua/pool.py)."""

    async def check(self, code: Code) -> None: ...

    def keep_spares(self, code: Code, count: int) -> None: ...

    def retire(self, job: JobId, older_than: int) -> None: ...


class ServerReloader:
    def __init__(
        self, *, root: Path, endpoints: Endpoints, machine: Machine, modules: Modules, clock: Clock, workers: int = 1
    ) -> None:
        self._workers = workers  # that serve requests, while there is a server
        self._root = root
        self._endpoints = endpoints
        self._machine = machine
        self._modules = modules
        self._clock = clock
        self._generation = 0
        self._changed = asyncio.Event()

    async def look(self) -> None:
        """See what is on disk, and bring about what changed."""
        found = await asyncio.to_thread(find_server, self._root)
        match found:
            case None:
                self._remove()
            case Problem():
                self._refuse(found)
            case ServerFile():
                await self._consider(found)

    async def _consider(self, file: ServerFile) -> None:
        stale = await asyncio.to_thread(self._modules.changed, SERVER, self._generation)
        version = self._endpoints.version
        if version and version.code.source == file.source and not stale:
            self._endpoints.problem = None
            return
        code = code_of_server(file, self._generation + 1)
        problem = await self._prove([code, *await asyncio.to_thread(module_codes, self._modules, code, stale)])
        if problem:
            self._refuse(problem)
        else:
            others = [code_of_server(file, code.generation, lane) for lane in range(1, self._workers)]
            self._swap(Version(codes=[code, *others]))

    async def _prove(self, codes: Sequence[Code | Problem]) -> Problem | None:
        for code in codes:
            problem = code if isinstance(code, Problem) else await self._proof(code)
            if problem:
                return problem
        return None

    async def _proof(self, code: Code) -> Problem | None:
        found = await judge(self._machine.check(code), code)
        if not found.is_final:
            self._clock.call_later(PATIENCE, self.wake)
        return found.problem

    def _swap(self, version: Version) -> None:
        self._modules.forget(SERVER, self._generation)
        self._generation = version.code.generation
        self._endpoints.version, self._endpoints.problem = version, None
        for code in version.codes:
            self._machine.keep_spares(code, SPARES)
        log.info("server loaded", file=INIT, generation=self._generation)

    def _refuse(self, problem: Problem) -> None:
        if problem != self._endpoints.problem:
            log.error("not loaded", problem=str(problem))
        self._endpoints.problem = problem

    def _remove(self) -> None:
        if self._endpoints.version:
            log.info("server gone", file=INIT)
            for code in self._endpoints.version.codes:
                self._machine.retire(code.job, self._generation + 1)
            self._modules.forget(SERVER, self._generation)
        self._endpoints.version = self._endpoints.problem = None

    def wake(self) -> None:
        """Something changed, or may have: look soon."""
        self._changed.set()

    async def keep_up(self) -> None:
        """Look again whenever something changed, and now and then in any case."""
        while True:
            timer = self._clock.call_later(RESCAN_SECONDS, self._changed.set)
            await self._changed.wait()
            timer.cancel()
            self._changed.clear()
            await self.look()
