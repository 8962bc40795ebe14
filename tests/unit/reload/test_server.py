"""A newer server/init.lua in place of the older one, or not at all."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spyweb.errors import ScriptError
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code
from spyweb.model import JobId, JobSpec
from spyweb.ops.sources import Sources
from spyweb.reload.proof import Prover
from spyweb.reload.swap import SPARES, ServerReloader
from spyweb.specs.server_file import SERVER
from tests.fakes.clock import FakeClock
from tests.fakes.endpoints import Served, make_served, say_hello
from tests.fakes.rights import bound_by_file_modes, needs_linux


class PoolOfServers(Pool):
    """Compiles all but what holds the word BROKEN."""

    def __init__(self) -> None:
        self.story: list[str] = []

    async def check(self, code: Code) -> None:
        if b"BROKEN" in code.source:
            raise ScriptError(code.chunk, 2, "unexpected symbol")

    def keep_spares(self, code: Code, count: int) -> None:
        assert count == SPARES
        self.story.append(f"keep {code.job} {code.generation}")

    def retire(self, job: JobId, older_than: int) -> None:
        self.story.append(f"retire {job} {older_than}")


@dataclass(slots=True)
class ServerHarness:
    root: Path
    served: Served
    pool: PoolOfServers
    sources: Sources
    reloader: ServerReloader

    async def save(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        await self.reloader.look()

    def source(self) -> bytes | None:
        version = self.served.endpoints.version
        return version.code.source if version else None

    @property
    def problem(self) -> str:
        return str(self.served.endpoints.problem or "")

    async def require(self, name: bytes) -> None:
        """As a request does that answers with the present version."""
        version = self.served.endpoints.version
        assert version
        await self.sources.find(SERVER, version.code.generation, "server", name)


async def refuse_to_execute(_spec: JobSpec, code: Code) -> None:
    raise AssertionError(code.chunk)


async def find_no_problem(selector: str, *, of_field: bool = False) -> str | None:
    raise AssertionError(selector, of_field)


@pytest.fixture
async def harness(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ServerHarness]:
    """Of a daemon with one worker, or with as many as the test says."""
    async with TaskGroup() as tasks:
        clock, pool, sources = FakeClock(), PoolOfServers(), Sources(tmp_path)
        served = make_served(say_hello, tasks, clock)
        served.endpoints.version = None
        reloader = ServerReloader(
            root=tmp_path,
            endpoints=served.endpoints,
            prover=Prover(
                pool=pool, sources=sources, load=refuse_to_execute, find_selector_problem=find_no_problem, clock=clock
            ),
            workers=getattr(request, "param", 1),
        )
        yield ServerHarness(tmp_path, served, pool, sources, reloader)


async def test_a_server_comes_is_edited_and_goes(harness: ServerHarness) -> None:
    await harness.reloader.look()
    assert harness.source() is None
    await harness.save("server/init.lua", "one")
    assert harness.source() == b"one"
    await harness.save("jobs.toml", "")
    await harness.save("server/init.lua", "two")
    assert harness.source() == b"two"
    (harness.root / "server/init.lua").unlink()
    await harness.reloader.look()
    assert (harness.source(), harness.problem) == (None, "")
    assert harness.pool.story == ["keep /server 1", "keep /server 2", "retire /server 3"]


@pytest.mark.parametrize("harness", [2], indirect=True)
async def test_each_worker_keeps_spares_and_lets_them_go(harness: ServerHarness) -> None:
    await harness.save("server/init.lua", "one")
    (harness.root / "server/init.lua").unlink()
    await harness.reloader.look()
    assert harness.pool.story == ["keep /server 1", "keep /server/1 1", "retire /server 2", "retire /server/1 2"]


async def test_a_broken_save_leaves_the_older_version_and_shows(harness: ServerHarness) -> None:
    await harness.save("server/init.lua", "BROKEN")
    assert (harness.source(), harness.problem) == (None, "server/init.lua:2: unexpected symbol")
    await harness.save("server/init.lua", "one")
    await harness.save("server/init.lua", "BROKEN")
    assert (harness.source(), harness.problem) == (b"one", "server/init.lua:2: unexpected symbol")
    await harness.save("server/init.lua", "one")
    assert (harness.source(), harness.problem) == (b"one", "")


async def test_an_edited_module_makes_a_new_version_unless_it_is_broken(harness: ServerHarness) -> None:
    await harness.save("server/lib.lua", "return 1")
    await harness.save("server/init.lua", "one")
    await harness.require(b"lib")
    await harness.save("server/lib.lua", "BROKEN")
    version = harness.served.endpoints.version
    assert version
    assert (version.code.generation, harness.problem) == (1, "server/lib.lua:2: unexpected symbol")
    await harness.save("server/lib.lua", "return 2")
    assert harness.served.endpoints.version is not version
    assert harness.problem == ""


@needs_linux
async def test_a_module_that_may_not_be_read_any_more_leaves_the_older_version(harness: ServerHarness) -> None:
    with bound_by_file_modes():
        await harness.save("lib.lua", "return 1")
        await harness.save("server/init.lua", "one")
        await harness.require(b"lib")
        (harness.root / "lib.lua").chmod(0)
        await harness.reloader.look()
    assert harness.served.endpoints.version
    assert harness.problem == "lib.lua: Permission denied"


async def test_a_module_that_is_gone_or_come_makes_a_new_version(harness: ServerHarness) -> None:
    await harness.save("lib.lua", "return 1")
    await harness.save("server/init.lua", "one")
    await harness.require(b"lib")
    await harness.save("server/lib.lua", "return 2")
    assert harness.pool.story == ["keep /server 1", "keep /server 2"]
