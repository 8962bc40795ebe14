"""A newer server/init.lua in place of the older one, or not at all."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from spyweb.errors import PoolError, ScriptError
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code
from spyweb.model import JobId, JobSpec
from spyweb.ops.sources import Sources
from spyweb.reload.proof import Prover
from spyweb.reload.server import SPARES, ServerReloader
from spyweb.specs.server_file import SERVER
from tests.fakes.clock import FakeClock
from tests.fakes.endpoints import Served, make_served, say_hello
from tests.fakes.rights import bound_by_file_modes, needs_linux


class PoolOfServers(Pool):
    """Compiles all but what holds the word BROKEN."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.is_without_workers = False

    async def check(self, code: Code) -> None:
        if self.is_without_workers:
            raise PoolError("no processes left")
        if b"BROKEN" in code.source:
            raise ScriptError(code.chunk, 2, "unexpected symbol")

    def keep_spares(self, code: Code, count: int) -> None:
        assert count == SPARES
        self.story.append(f"keep {code.job} {code.generation}")

    def retire(self, job: JobId, older_than: int) -> None:
        self.story.append(f"retire {job} {older_than}")


@dataclass(slots=True)
class World:
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


Making = Callable[[int], World]


async def refuse_to_execute(_spec: JobSpec, code: Code) -> None:
    raise AssertionError(code.chunk)


async def find_no_problem(selector: str, *, of_field: bool = False) -> str | None:
    raise AssertionError(selector, of_field)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Making]:
    async with TaskGroup() as tasks:

        def world(workers: int = 1) -> World:
            clock, pool, sources = FakeClock(), PoolOfServers(), Sources(tmp_path)
            served = make_served(say_hello, tasks, clock)
            served.endpoints.version = None
            reloader = ServerReloader(
                root=tmp_path,
                endpoints=served.endpoints,
                prover=Prover(
                    pool=pool,
                    sources=sources,
                    execute=refuse_to_execute,
                    find_selector_problem=find_no_problem,
                    clock=clock,
                ),
                pool=pool,
                sources=sources,
                workers=workers,
            )
            return World(tmp_path, served, pool, sources, reloader)

        yield world


@pytest.fixture
async def world(make: Making) -> World:
    return make(1)


async def test_a_server_comes_is_edited_and_goes(world: World) -> None:
    await world.reloader.look()
    assert world.source() is None
    await world.save("server/init.lua", "one")
    assert world.source() == b"one"
    await world.save("server/init.lua", "two")
    assert world.source() == b"two"
    (world.root / "server/init.lua").unlink()
    await world.reloader.look()
    assert (world.source(), world.problem) == (None, "")
    assert world.pool.story == ["keep /server 1", "keep /server 2", "retire /server 3"]


async def test_each_worker_keeps_spares_and_lets_them_go(make: Making) -> None:
    world = make(2)
    await world.save("server/init.lua", "one")
    (world.root / "server/init.lua").unlink()
    await world.reloader.look()
    assert world.pool.story == ["keep /server 1", "keep /server/1 1", "retire /server 2", "retire /server/1 2"]


async def test_a_broken_save_leaves_the_older_version_and_shows(world: World) -> None:
    await world.save("server/init.lua", "one")
    await world.save("server/init.lua", "BROKEN")
    assert (world.source(), world.problem) == (b"one", "server/init.lua:2: unexpected symbol")
    await world.save("server/init.lua", "one")
    assert (world.source(), world.problem) == (b"one", "")


async def test_an_emptied_file_is_no_newer_version(world: World) -> None:
    await world.save("server/init.lua", "one")
    await world.save("server/init.lua", "")
    assert (world.source(), world.problem) == (b"one", "server/init.lua: is empty")


async def test_a_broken_first_version_shows(world: World) -> None:
    await world.save("server/init.lua", "BROKEN")
    assert (world.source(), world.problem) == (None, "server/init.lua:2: unexpected symbol")


async def test_what_has_not_changed_stays(world: World) -> None:
    await world.save("server/init.lua", "one")
    version = world.served.endpoints.version
    await world.save("jobs.toml", "")
    assert world.served.endpoints.version is version


async def test_an_edited_module_makes_a_new_version_unless_it_is_broken(world: World) -> None:
    await world.save("server/lib.lua", "return 1")
    await world.save("server/init.lua", "one")
    await world.require(b"lib")
    await world.save("server/lib.lua", "BROKEN")
    version = world.served.endpoints.version
    assert version
    assert (version.code.generation, world.problem) == (1, "server/lib.lua:2: unexpected symbol")
    await world.save("server/lib.lua", "return 2")
    assert world.served.endpoints.version is not version
    assert world.problem == ""


@needs_linux
async def test_a_module_that_may_not_be_read_any_more_leaves_the_older_version(world: World) -> None:
    with bound_by_file_modes():
        await world.save("lib.lua", "return 1")
        await world.save("server/init.lua", "one")
        await world.require(b"lib")
        (world.root / "lib.lua").chmod(0)
        await world.reloader.look()
    assert world.served.endpoints.version
    assert world.problem == "lib.lua: Permission denied"


async def test_a_module_that_is_gone_or_come_makes_a_new_version(world: World) -> None:
    await world.save("lib.lua", "return 1")
    await world.save("server/init.lua", "one")
    await world.require(b"lib")
    await world.save("server/lib.lua", "return 2")
    assert world.pool.story == ["keep /server 1", "keep /server 2"]


async def test_a_version_that_no_worker_could_be_had_for_is_to_be_looked_at_again(world: World) -> None:
    world.pool.is_without_workers = True
    (world.root / "server").mkdir()
    (world.root / "server/init.lua").write_text("one")
    assert not await world.reloader.look()
    assert world.problem == "server/init.lua: no processes left"
    world.pool.is_without_workers = False
    assert await world.reloader.look()
    assert (world.source(), world.problem) == (b"one", "")
