"""Keep the endpoints up to date with server/init.lua: a newer version takes over once it compiles.

A save that does not compile leaves the older version answering, and its problem on show.  Before there is any version,
the problem makes every request fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from spyweb.endpoints import Endpoints, ServerVersion
from spyweb.errors import Problem
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code
from spyweb.ops.sources import Sources
from spyweb.permissions.policy import ANYTHING, Policy
from spyweb.reload.proof import Prover, Verdict
from spyweb.specs.server_file import INIT, SERVER, code_of_server, find_server

log = structlog.get_logger()

SPARES = 4  # VMs that each worker has ready for the next requests; more gained nothing


@dataclass(kw_only=True, eq=False)
class ServerReloader:
    root: Path
    endpoints: Endpoints
    prover: Prover
    pool: Pool
    sources: Sources
    workers: int = 1  # that serve requests while there is a server
    policy: Policy = ANYTHING
    _generation: int = 0

    async def look(self) -> bool:
        """Read the file and apply what changed; return False where that has to be tried again soon."""
        found = await asyncio.to_thread(find_server, self.root)
        if found is None:
            self._remove()
            return True
        if isinstance(found, Problem):
            self._refuse(found)
            return True
        stale = await asyncio.to_thread(self.sources.changed, SERVER, self._generation)
        version = self.endpoints.version
        if version and version.code.source == found and not stale:
            self.endpoints.problem = None
            return True
        code = code_of_server(found, self._generation + 1, policy=self.policy)
        verdict = await self._prove([code, *await asyncio.to_thread(self.prover.read_modules, code, stale)])
        if verdict.problem:
            self._refuse(verdict.problem)
            return verdict.is_final
        others = [code_of_server(found, code.generation, worker, self.policy) for worker in range(1, self.workers)]
        self.sources.forget(SERVER, self._generation)
        self._generation = code.generation
        self.endpoints.version, self.endpoints.problem = ServerVersion(codes=[code, *others]), None
        for each in (code, *others):
            self.pool.keep_spares(each, SPARES)
        log.info("server loaded", file=INIT, generation=self._generation)
        return True

    async def _prove(self, codes: Sequence[Code | Problem]) -> Verdict:
        for code in codes:
            verdict = Verdict(code) if isinstance(code, Problem) else await self.prover.compile(code)
            if verdict.problem:
                return verdict
        return Verdict()

    def _refuse(self, problem: Problem) -> None:
        if problem != self.endpoints.problem:
            log.error("not loaded", problem=str(problem))
        self.endpoints.problem = problem

    def _remove(self) -> None:
        if self.endpoints.version:
            log.info("server gone", file=INIT)
            for code in self.endpoints.version.codes:
                self.pool.retire(code.job, self._generation + 1)
            self.sources.forget(SERVER, self._generation)
        self.endpoints.version = self.endpoints.problem = None
