"""Keep the endpoints up to date with server/init.lua: a newer version takes over once it compiles.

A save that does not compile leaves the older version answering, and its problem on show.  Before there is any version,
the problem makes every request fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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


class ServerReloader:
    def __init__(  # noqa: PLR0913 - each part by its name
        self,
        *,
        root: Path,
        endpoints: Endpoints,
        prover: Prover,
        pool: Pool,
        sources: Sources,
        workers: int = 1,
        policy: Policy = ANYTHING,
    ) -> None:
        """Keep these endpoints up to date; `workers` is how many workers serve requests while there is a server."""
        self._root = root
        self._endpoints = endpoints
        self._prover = prover
        self._pool = pool
        self._sources = sources
        self._workers = workers
        self._policy = policy
        self._generation = 0

    async def look(self) -> bool:
        """Read the file and apply what changed; return False where that has to be tried again soon."""
        found = await asyncio.to_thread(find_server, self._root)
        if found is None:
            self._remove()
            return True
        if isinstance(found, Problem):
            self._refuse(found)
            return True
        return await self._look_at(found)

    async def _look_at(self, source: bytes) -> bool:
        stale = await asyncio.to_thread(self._sources.changed, SERVER, self._generation)
        version = self._endpoints.version
        if version and version.code.source == source and not stale:
            self._endpoints.problem = None
            return True
        code = code_of_server(source, self._generation + 1, policy=self._policy)
        verdict = await self._prove([code, *await asyncio.to_thread(self._prover.read_modules, code, stale)])
        if verdict.problem:
            self._refuse(verdict.problem)
            return verdict.is_final
        others = [code_of_server(source, code.generation, worker, self._policy) for worker in range(1, self._workers)]
        self._swap(ServerVersion(codes=[code, *others]))
        return True

    async def _prove(self, codes: Sequence[Code | Problem]) -> Verdict:
        for code in codes:
            verdict = Verdict(code) if isinstance(code, Problem) else await self._prover.compile(code)
            if verdict.problem:
                return verdict
        return Verdict()

    def _swap(self, version: ServerVersion) -> None:
        self._sources.forget(SERVER, self._generation)
        self._generation = version.code.generation
        self._endpoints.version, self._endpoints.problem = version, None
        for code in version.codes:
            self._pool.keep_spares(code, SPARES)
        log.info("server loaded", file=INIT, generation=self._generation)

    def _refuse(self, problem: Problem) -> None:
        if problem != self._endpoints.problem:
            log.error("not loaded", problem=str(problem))
        self._endpoints.problem = problem

    def _remove(self) -> None:
        if self._endpoints.version:
            log.info("server gone", file=INIT)
            for code in self._endpoints.version.codes:
                self._pool.retire(code.job, self._generation + 1)
            self._sources.forget(SERVER, self._generation)
        self._endpoints.version = self._endpoints.problem = None
