"""A newer version in place of the older one, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spyweb.errors import ScriptError
from spyweb.jobs.live import LiveJob
from spyweb.model import JobId
from spyweb.ops.sources import Sources
from spyweb.reload.swap import Parts, Reloader
from spyweb.settings import load_settings
from tests.fakes.town import Town, town

HELLO = "-- /// job\n-- every = '1m'\n-- ///\nlog('hello')\n"


@dataclass(slots=True)
class World:
    root: Path
    town: Town
    reloader: Reloader
    sources: Sources
    broken: list[str] = field(default_factory=list)

    def save(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def look(self) -> None:
        await self.reloader.rescan()
        await self.town.clock.turn()

    def job(self, name: str) -> LiveJob:
        found = self.town.live.find(JobId(name))
        assert found
        return found

    def names(self) -> list[str]:
        return sorted(job.id for job in self.town.live)


@asynccontextmanager
async def world(root: Path, jobs: Mapping[str, str]) -> AsyncIterator[World]:
    (root / "jobs").mkdir()
    async with town() as t:
        sources = Sources(root)
        parts = Parts(
            root=root,
            live=t.live,
            prover=t.machine,
            modules=sources,
            schedule=t.scheduler,
            read_settings=lambda: load_settings(root, environ={}, flags={}),
            forget=t.runner.forget,
            clock=t.clock,
        )
        reloader = Reloader(parts, parts.read_settings())
        w = World(root=root, town=t, reloader=reloader, sources=sources)
        for name, text in jobs.items():
            w.save(f"jobs/{name}.lua", text)
        await reloader.load({})
        t.timers.start()
        await t.clock.turn(1)
        yield w


def errors_of(job: LiveJob) -> Sequence[str]:
    return [problem.reason for problem in job.problems]


async def test_a_dropped_file_lives_and_runs(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        await w.town.clock.turn(1)
        assert await w.town.record() == ["hello schedule success"]


async def test_an_edit_swaps_the_code_and_keeps_cursor_and_cadence(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        cursor = w.job("hello").cursor
        w.save("jobs/hello.lua", HELLO + "log('again')\n")
        await w.look()
        job = w.job("hello")
        assert (job.code.generation, job.cursor) == (2, cursor)
        assert b"again" in job.code.source
        assert (JobId("hello"), 2) in w.town.machine.retired


async def test_a_broken_save_leaves_the_old_version_running_and_shows_why(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.town.machine.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "'=' expected")
        w.save("jobs/hello.lua", HELLO + "oops oops\n")
        await w.look()
        assert w.job("hello").code.generation == 1
        assert errors_of(w.job("hello")) == ["'=' expected"]
        await w.town.clock.turn(60)
        assert len(await w.town.record()) == 2


async def test_a_repaired_file_takes_over_and_clears_the_error(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.town.machine.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "'=' expected")
        w.save("jobs/hello.lua", HELLO + "oops oops\n")
        await w.look()
        w.town.machine.broken.clear()
        w.save("jobs/hello.lua", HELLO + "log('fine')\n")
        await w.look()
        assert w.job("hello").code.generation == 2
        assert errors_of(w.job("hello")) == []


async def test_settings_that_are_wrong_leave_the_old_version_running(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("jobs/hello.lua", HELLO.replace("every", "evry"))
        await w.look()
        assert w.names() == ["hello"]
        assert "every" in errors_of(w.job("hello"))[0]


async def test_a_change_of_settings_alone_keeps_the_vm(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("config.toml", "[jobs.hello]\nevery = '2m'\n")
        await w.look()
        assert w.job("hello").code.generation == 1
        await w.town.clock.turn(61)
        assert len(await w.town.record()) == 1
        await w.town.clock.turn(60)
        assert len(await w.town.record()) == 2


async def test_a_new_job_that_does_not_compile_does_not_live_until_it_does(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.town.machine.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 1, "no")
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        assert w.names() == []
        assert JobId("hello") in w.reloader.broken
        w.town.machine.broken.clear()
        await w.look()
        assert w.names() == ["hello"]


async def test_a_luau_construct_that_does_not_compile_is_named(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.town.machine.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "syntax error near '+'")
        w.save("jobs/hello.lua", HELLO + "count += 1\n")
        await w.look()
        assert errors_of(w.job("hello")) == [
            "syntax error near '+' (`+=` is Luau, not Lua 5.4: write count = count + 1)"
        ]


async def test_a_deleted_file_ends_the_job(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        (tmp_path / "jobs/hello.lua").unlink()
        await w.look()
        await w.town.clock.turn(600)
        assert w.names() == []
        assert await w.town.record() == ["hello schedule success"]


async def test_a_job_that_comes_back_is_due_again_and_its_absence_is_one_record(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        (tmp_path / "jobs/hello.lua").unlink()
        await w.look()
        await w.town.clock.turn(300)
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        await w.town.clock.turn(60)
        assert await w.town.record() == ["hello schedule success", "hello schedule paused x5", "hello schedule success"]


async def test_a_disabled_job_does_not_run_and_its_absence_is_one_record(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("config.toml", "[jobs.hello]\nenabled = false\n")
        await w.look()
        await w.town.clock.turn(300)
        w.save("config.toml", "")
        await w.look()
        await w.town.clock.turn(60)
        assert await w.town.record() == ["hello schedule success", "hello schedule paused x5", "hello schedule success"]


async def test_an_edited_module_reloads_just_the_jobs_that_loaded_it(tmp_path: Path) -> None:
    async with world(tmp_path, {"a": HELLO, "b": HELLO}) as w:
        w.save("lib/tools.lua", "return 1\n")
        await w.sources.find(JobId("a"), 1, "jobs/a", b"lib.tools")
        w.save("lib/tools.lua", "return 2\n")
        await w.look()
        assert (w.job("a").code.generation, w.job("b").code.generation) == (2, 1)


async def test_a_module_that_appears_where_it_was_looked_for_in_vain_reloads_the_job(tmp_path: Path) -> None:
    async with world(tmp_path, {"a": HELLO}) as w:
        w.save("lib/tools.lua", "return 1\n")
        await w.sources.find(JobId("a"), 1, "jobs/a", b"lib.tools")
        w.save("jobs/a/lib/tools.lua", "return 2\n")
        await w.look()
        assert w.job("a").code.generation == 2


async def test_a_broken_module_keeps_the_old_version_of_its_job(tmp_path: Path) -> None:
    async with world(tmp_path, {"a": HELLO}) as w:
        w.save("lib/tools.lua", "return 1\n")
        await w.sources.find(JobId("a"), 1, "jobs/a", b"lib.tools")
        w.town.machine.broken["lib/tools.lua"] = lambda: ScriptError("lib/tools.lua", 1, "no")
        w.save("lib/tools.lua", "return return\n")
        await w.look()
        assert w.job("a").code.generation == 1
        assert errors_of(w.job("a")) == ["no"]


async def test_nothing_changed_means_nothing_done(tmp_path: Path) -> None:
    async with world(tmp_path, {"a": HELLO}) as w:
        w.save("lib/tools.lua", "return 1\n")
        await w.sources.find(JobId("a"), 1, "jobs/a", b"lib.tools")
        before = w.job("a").code
        await w.look()
        assert w.job("a").code is before


async def test_a_broken_config_keeps_the_settings_in_force(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        settings = w.reloader.settings
        w.save("config.toml", "[daemon\n")
        await w.look()
        assert w.reloader.settings is settings
        assert w.names() == ["hello"]
