"""A newer version in place of the older one, or not at all."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from spyweb.endpoints.endpoints import Endpoints
from spyweb.errors import PoolError, ScriptError, StoreError
from spyweb.lua.session import Code
from spyweb.model import JobId, JobSpec
from spyweb.ops.sources import Sources
from spyweb.reload import proof
from spyweb.reload.proof import Prover
from spyweb.reload.server import ServerReloader
from spyweb.reload.settings_file import SettingsFile
from spyweb.reload.swap import RETRY_S, Reloader
from spyweb.runs.live import LiveJob
from spyweb.settings import Settings, load_settings
from tests.fakes.changes import refuse
from tests.fakes.endpoints import make_served, say_hello
from tests.fakes.harness import Harness, harness
from tests.fakes.rights import bound_by_file_modes, needs_linux

MONITOR = 'name = "Watch"\nurl = "https://example.com"\nselector = "li"\nfields = ["t"]\ninterval = 60\n'
HOOKS = "function before_fetch(request) return request end\n"
HELLO = "-- /// job\n-- every = '1m'\n-- ///\nlog('hello')\n"


@dataclass(slots=True)
class World:
    root: Path
    harness: Harness
    reloader: Reloader
    sources: Sources
    endpoints: Endpoints
    executed: list[Code] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)  # chunk → why it can't be executed
    lost: bool = False  # whether a refusal says nothing about the files
    while_executing: Callable[[], None] = lambda: None

    def save(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def execute(self, spec: JobSpec, code: Code) -> None:
        assert spec.id == code.job
        self.executed.append(code)
        self.while_executing()
        if code.chunk in self.refusals and self.lost:
            raise PoolError(self.refusals[code.chunk])
        if code.chunk in self.refusals:
            raise ScriptError(code.chunk, 1, self.refusals[code.chunk])

    async def look(self) -> None:
        await self.reloader.rescan()
        await self.harness.clock.turn()

    def job(self, name: str) -> LiveJob:
        found = self.harness.live.find(JobId(name))
        assert found
        return found

    def names(self) -> list[str]:
        return sorted(job.id for job in self.harness.live)


async def find_selector_problem(selector: str, *, of_field: bool = False) -> str | None:
    return f"no CSS: {selector}" if "[" in selector and not of_field else None


@asynccontextmanager
async def world(root: Path, jobs: Mapping[str, str]) -> AsyncIterator[World]:
    (root / "jobs").mkdir()
    async with harness() as t:
        sources = Sources(root)

        async def execute(spec: JobSpec, code: Code) -> None:
            await w.execute(spec, code)

        def read_settings() -> Settings:
            return load_settings(root, environ={}, flags={})

        prover = Prover(
            pool=t.pool,
            sources=sources,
            execute=execute,
            find_selector_problem=find_selector_problem,
            clock=t.clock,
        )
        endpoints = make_served(say_hello, t.tasks, t.clock).endpoints
        endpoints.version = None
        reloader = Reloader(
            root=root,
            settings_file=SettingsFile(root, read_settings, read_settings()),
            live=t.live,
            scheduler=t.scheduler,
            runner=t.runner,
            prover=prover,
            server=ServerReloader(root=root, endpoints=endpoints, prover=prover, pool=t.pool, sources=sources),
            clock=t.clock,
        )
        w = World(root=root, harness=t, reloader=reloader, sources=sources, endpoints=endpoints)
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
        await w.harness.clock.turn(1)
        assert await w.harness.record() == ["hello schedule success"]


async def test_an_edit_swaps_the_code_and_keeps_cursor_and_cadence(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        cursor = w.job("hello").cursor
        w.save("jobs/hello.lua", HELLO + "log('again')\n")
        await w.look()
        job = w.job("hello")
        assert (job.code.generation, job.cursor) == (2, cursor)
        assert b"again" in job.code.source
        assert (JobId("hello"), 2) in w.harness.pool.retired


async def test_a_broken_save_leaves_the_old_version_running_and_shows_why(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "'=' expected")
        w.save("jobs/hello.lua", HELLO + "oops oops\n")
        await w.look()
        assert w.job("hello").code.generation == 1
        assert errors_of(w.job("hello")) == ["'=' expected"]
        await w.harness.clock.turn(60)
        assert len(await w.harness.record()) == 2


async def test_a_repaired_file_takes_over_and_clears_the_error(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "'=' expected")
        w.save("jobs/hello.lua", HELLO + "oops oops\n")
        await w.look()
        w.harness.pool.broken.clear()
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
        await w.harness.clock.turn(61)
        assert len(await w.harness.record()) == 1
        await w.harness.clock.turn(60)
        assert len(await w.harness.record()) == 2


async def test_a_new_job_that_does_not_compile_does_not_live_until_it_does(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 1, "no")
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        assert w.names() == []
        assert JobId("hello") in w.reloader.broken
        w.harness.pool.broken.clear()
        await w.look()
        assert w.names() == ["hello"]


async def test_a_job_that_never_could_be_loaded_is_awaited_until_it_can_be_or_is_gone(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO, "oops": "-- /// job\n"}) as w:
        assert w.harness.live.unloadable == {"oops", "jobs/oops.lua"}
        w.save("jobs/oops.lua", HELLO)
        w.save("jobs/hello.lua", "-- /// job\n")
        await w.look()
        assert w.harness.live.unloadable == frozenset(), "the old version of hello lives on"
        w.save("jobs/more.lua", "-- /// job\n")
        await w.look()
        assert w.harness.live.unloadable == {"more", "jobs/more.lua"}
        (tmp_path / "jobs/more.lua").unlink()
        await w.look()
        assert w.harness.live.unloadable == frozenset()


async def test_an_edit_of_the_settings_alone_is_told_to_whoever_depends_on_them(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        seen: list[object] = []
        w.harness.live.on_linked(lambda: seen.append(w.reloader.settings.state.history))
        w.save("config.toml", "[state.history]\nstate = 3\n")
        await w.look()
        await w.look()
        assert len(seen) == 1
        assert "state" in str(seen[0])


async def test_a_luau_construct_that_does_not_compile_is_named(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "syntax error near '+'")
        w.save("jobs/hello.lua", HELLO + "count += 1\n")
        await w.look()
        assert errors_of(w.job("hello")) == [
            "syntax error near '+' (`+=` is Luau, not Lua 5.4: write count = count + 1)"
        ]


async def test_a_deleted_file_ends_the_job(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        (tmp_path / "jobs/hello.lua").unlink()
        await w.look()
        await w.harness.clock.turn(600)
        assert w.names() == []
        assert await w.harness.record() == ["hello schedule success"]


async def test_a_file_that_comes_back_after_its_deactivation_was_refused_is_due_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        (tmp_path / "jobs/hello.lua").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(w.harness.store.runs, "record", refuse)
            with pytest.raises(StoreError):
                await w.look()
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        await w.harness.clock.turn(60)
        assert await w.harness.record() == ["hello schedule success"] * 2


async def test_an_edit_that_the_store_refuses_forgets_no_pause_that_comes_before_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("jobs/hello.lua", HELLO + "log('again')\n")
        with monkeypatch.context() as patch:
            patch.setattr(w.harness.store.runs, "record", refuse)
            with pytest.raises(StoreError):
                await w.look()
        await w.harness.scheduler.pause(w.job("hello"))
        await w.look()
        await w.harness.clock.turn(600)
        assert w.job("hello").cursor.paused
        assert await w.harness.record() == ["hello schedule success"]


async def test_a_newcomer_that_is_edited_before_the_store_takes_it_is_not_due_since_1970(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, {}) as w:
        w.save("jobs/hello.lua", HELLO)
        with monkeypatch.context() as patch:
            patch.setattr(w.harness.store.runs, "record", refuse)
            with pytest.raises(StoreError):
                await w.look()
        w.save("jobs/hello.lua", HELLO + "log('again')\n")
        await w.look()
        await w.harness.clock.turn(1)
        assert await w.harness.record() == ["hello schedule success"]


async def test_a_newcomer_that_goes_before_the_store_takes_it_is_new_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, {}) as w:
        w.save("jobs/hello.lua", HELLO)
        with monkeypatch.context() as patch:
            patch.setattr(w.harness.store.runs, "record", refuse)
            with pytest.raises(StoreError):
                await w.look()
        (tmp_path / "jobs/hello.lua").unlink()
        await w.look()
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        await w.harness.clock.turn(1)
        assert await w.harness.record() == ["hello schedule success"]


async def test_a_job_that_comes_back_is_due_again_and_its_absence_is_one_record(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        (tmp_path / "jobs/hello.lua").unlink()
        await w.look()
        await w.harness.clock.turn(300)
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        await w.harness.clock.turn(60)
        assert await w.harness.record() == [
            "hello schedule success",
            "hello schedule paused x5",
            "hello schedule success",
        ]


async def test_a_disabled_job_does_not_run_and_its_absence_is_one_record(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("config.toml", "[jobs.hello]\nenabled = false\n")
        await w.look()
        await w.harness.clock.turn(300)
        (tmp_path / "config.toml").unlink()
        await w.look()
        await w.harness.clock.turn(60)
        assert await w.harness.record() == [
            "hello schedule success",
            "hello schedule paused x5",
            "hello schedule success",
        ]


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
        w.harness.pool.broken["lib/tools.lua"] = lambda: ScriptError("lib/tools.lua", 1, "no")
        w.save("lib/tools.lua", "return return\n")
        await w.look()
        assert w.job("a").code.generation == 1
        assert errors_of(w.job("a")) == ["no"]


@needs_linux
async def test_a_module_that_may_not_be_read_any_more_keeps_the_old_version_of_its_job(tmp_path: Path) -> None:
    with bound_by_file_modes():  # for the threads too, that look at files
        async with world(tmp_path, {"a": HELLO, "b": HELLO}) as w:
            w.save("lib/tools.lua", "return 1\n")
            await w.sources.find(JobId("a"), 1, "jobs/a", b"lib.tools")
            (tmp_path / "lib/tools.lua").chmod(0)
            w.save("jobs/b.lua", HELLO + "log(2)\n")
            await w.look()
            assert (w.job("a").code.generation, w.job("b").code.generation) == (1, 2)
            assert errors_of(w.job("a")) == ["Permission denied"]
            (tmp_path / "lib/tools.lua").chmod(0o600)
            await w.look()
            assert errors_of(w.job("a")) == []


@needs_linux
async def test_a_project_that_may_not_be_entered_for_a_moment_keeps_its_jobs(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with bound_by_file_modes():
        async with world(root, {"a": HELLO}) as w:
            root.chmod(0)
            await w.look()
            assert w.job("a").code.generation == 1
            root.chmod(0o700)
            await w.look()
            assert w.job("a").code.generation == 1


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


async def test_a_named_pipe_in_place_of_the_settings_holds_nothing_up(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        settings = w.reloader.settings
        os.mkfifo(tmp_path / "config.toml")
        with capture_logs() as lines:
            await w.look()
        assert [line["problem"] for line in lines] == ["config.toml: can't be read: not a regular file"]
        assert w.reloader.settings is settings


@pytest.mark.parametrize("text", ["", "[daemon\n"])
async def test_settings_that_stay_broken_are_told_once_however_often_anybody_looks(tmp_path: Path, text: str) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        with capture_logs() as lines:
            for _ in range(3):
                w.save("config.toml", text)
                await w.look()
            w.save("config.toml", "[daemon]\n")
            await w.look()
            w.save("config.toml", text)
            await w.look()
        assert [line["event"] for line in lines] == ["settings not reloaded"] * 2


async def test_settings_that_take_a_start_are_told_once(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("config.toml", "[server]\nport = 1\n")
        with capture_logs() as lines:
            await w.look()
            await w.look()
            (tmp_path / "config.toml").unlink()
            await w.look()
        waiting = [line["settings"] for line in lines if line["event"] == "settings take effect at the next start"]
        assert waiting == [["server.port"]]


def save_monitor(w: World, name: str = "w", settings: str = MONITOR, **files: str) -> None:
    w.save(f"jobs/{name}/config.toml", settings)
    for file, text in files.items():
        w.save(f"jobs/{name}/{file}.lua", text)


async def test_a_monitors_files_are_executed_in_the_version_that_then_lives(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        save_monitor(w, hooks=HOOKS, defer="x = 1")
        await w.look()
        (executed,) = w.executed
        assert executed == w.job("watch").code
        assert (executed.chunk, executed.more) == ("jobs/w/hooks.lua", (("jobs/w/defer.lua", b"x = 1"),))


async def test_an_edit_of_a_hook_is_executed_before_it_takes_over(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        save_monitor(w, hooks=HOOKS)
        await w.look()
        w.save("jobs/w/defer.lua", "x = 1")
        await w.look()
        assert [code.generation for code in w.executed] == [1, 2]
        assert w.job("watch").code == w.executed[1]


async def test_hooks_that_fail_leave_the_old_version_running_and_show_why(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        save_monitor(w, hooks=HOOKS)
        await w.look()
        w.refusals["jobs/w/hooks.lua"] = "boom"
        w.save("jobs/w/hooks.lua", HOOKS + "error('boom')\n")
        await w.look()
        assert w.job("watch").code == w.executed[0]
        assert errors_of(w.job("watch")) == ["boom"]
        assert w.harness.pool.discarded == [(JobId("watch"), 2)]
        w.refusals.clear()
        w.save("jobs/w/hooks.lua", HOOKS + "-- repaired\n")
        await w.look()
        assert w.job("watch").code.generation == 3
        assert errors_of(w.job("watch")) == []


async def test_a_monitor_never_lives_without_its_hooks(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.refusals["jobs/w/hooks.lua"] = "boom"
        save_monitor(w, hooks=HOOKS)
        await w.look()
        assert w.names() == []
        assert [problem.reason for problem in w.reloader.broken[JobId("watch")]] == ["boom"]


async def test_files_that_failed_are_executed_again_when_something_changes_or_after_a_while(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.refusals["jobs/w/hooks.lua"] = "boom"
        w.save("lib/tools.lua", "return 1\n")
        save_monitor(w, hooks=HOOKS)
        await w.look()
        await w.sources.find(JobId("watch"), 1, "jobs/w", b"lib.tools")
        await w.look()
        assert len(w.executed) == 1
        w.save("lib/tools.lua", "return 2\n")
        await w.look()
        assert len(w.executed) == 2
        await w.harness.clock.turn(proof.RETRY_S + 1)
        w.refusals.clear()
        await w.look()
        assert w.names() == ["watch"]


async def test_a_file_that_no_worker_could_be_had_for_is_soon_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.harness.pool.broken["jobs/hello.lua"] = lambda: PoolError("no processes left")
        w.save("jobs/hello.lua", HELLO)
        keeping = w.harness.tasks.create_task(w.reloader.keep_up())
        await w.look()
        assert [problem.reason for problem in w.reloader.broken[JobId("hello")]] == ["no processes left"]
        w.harness.pool.broken.clear()
        await w.harness.clock.turn(RETRY_S)
        async with asyncio.timeout(10):
            while not w.names():
                await asyncio.to_thread(lambda: None)
        keeping.cancel()


async def test_files_whose_worker_was_lost_are_soon_executed_again(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.refusals["jobs/w/hooks.lua"] = "its worker died"
        w.lost = True
        save_monitor(w, hooks=HOOKS)
        keeping = w.harness.tasks.create_task(w.reloader.keep_up())
        await w.look()
        assert [problem.reason for problem in w.reloader.broken[JobId("watch")]] == ["its worker died"]
        w.refusals.clear()
        await w.harness.clock.turn(RETRY_S)
        while not w.names():
            await asyncio.to_thread(lambda: None)
        keeping.cancel()


async def test_a_monitor_without_lua_touches_no_vm(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.harness.pool.broken["jobs/w/config.toml"] = lambda: ScriptError("jobs/w/config.toml", 1, "no Lua")
        save_monitor(w)
        await w.look()
        assert (w.names(), w.executed) == (["watch"], [])


async def test_a_disabled_monitor_is_executed_once_it_is_enabled(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        save_monitor(w, settings=MONITOR + "enabled = false\n", hooks=HOOKS)
        await w.look()
        assert (w.names(), w.executed) == (["watch"], [])
        w.refusals["jobs/w/hooks.lua"] = "boom"
        save_monitor(w)
        await w.look()
        assert not w.job("watch").spec.enabled
        w.refusals.clear()
        w.save("jobs/w/hooks.lua", HOOKS + "-- repaired\n")
        await w.look()
        assert w.job("watch").spec.enabled


async def test_settings_of_a_monitor_alone_keep_the_vm(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        save_monitor(w, hooks=HOOKS)
        await w.look()
        save_monitor(w, settings=MONITOR.replace('"li"', '"p"'))
        await w.look()
        monitor = w.job("watch").spec.monitor
        assert monitor
        assert (monitor.selector, w.job("watch").code.generation, len(w.executed)) == ("p", 1, 1)


async def test_slow_hooks_do_not_hold_up_the_jobs_that_need_none(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        seen: list[list[str]] = []
        w.while_executing = lambda: seen.append(w.names())
        save_monitor(w, hooks=HOOKS)
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        assert (seen, w.names()) == ([["hello"]], ["hello", "watch"])


async def test_a_selector_that_nobody_can_parse_leaves_the_old_version_running(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        save_monitor(w)
        await w.look()
        save_monitor(w, settings=MONITOR.replace('"li"', '"li["'))
        await w.look()
        monitor = w.job("watch").spec.monitor
        assert monitor
        assert monitor.selector == "li"
        assert [str(problem) for problem in w.job("watch").problems] == ["jobs/w/config.toml:3: selector: no CSS: li["]


@pytest.mark.parametrize("text", ["", " \n", '-- /// job\n-- name = "Price Watch"\n'])
async def test_a_job_whose_file_is_cut_short_goes_on_under_its_own_name(tmp_path: Path, text: str) -> None:
    named = '-- /// job\n-- name = "Price Watch"\n-- every = "1m"\n-- ///\n'
    async with world(tmp_path, {"a": named}) as w:
        w.save("jobs/a.lua", text)
        await w.look()
        assert (w.names(), list(w.reloader.broken)) == (["price_watch"], ["price_watch"])
        assert errors_of(w.job("price_watch"))
        await w.harness.clock.turn(60)
        w.save("jobs/a.lua", named)
        await w.look()
        assert errors_of(w.job("price_watch")) == []
        assert await w.harness.record() == ["price_watch schedule success"] * 2


async def test_jobs_of_a_list_that_is_cut_short_go_on(tmp_path: Path) -> None:
    listed = "".join(f"[[jobs]]\n{MONITOR.replace('Watch', name)}" for name in ("One", "Two"))
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("jobs.toml", listed)
        await w.look()
        for text in ("", listed[:-5], "[[jobs]]\n"):
            w.save("jobs.toml", text)
            await w.look()
            assert w.names() == ["hello", "one", "two"]
            assert errors_of(w.job("one"))
            assert errors_of(w.job("two"))
            assert list(w.reloader.broken) == ["one", "two"]
        w.save("jobs.toml", f"[[jobs]]\n{MONITOR}")
        await w.look()
        assert w.names() == ["hello", "watch"]


async def test_settings_that_are_cut_short_stay_in_force(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.save("config.toml", "[jobs.hello]\nenabled = false\n")
        await w.look()
        w.save("config.toml", " \n")
        await w.look()
        assert not w.job("hello").spec.enabled


async def test_a_folder_that_becomes_two_kinds_of_job_keeps_the_one_it_was(tmp_path: Path) -> None:
    async with world(tmp_path, {"w/init": HELLO}) as w:
        save_monitor(w)
        await w.look()
        assert w.names() == ["w"]
        assert "holds both" in errors_of(w.job("w"))[0]


async def test_a_job_that_comes_back_goes_on_counting_its_versions(tmp_path: Path) -> None:
    """The pool drops the VMs of versions below the one that was deleted."""
    async with world(tmp_path, {"hello": HELLO}) as w:
        (tmp_path / "jobs/hello.lua").unlink()
        await w.look()
        w.save("jobs/hello.lua", HELLO)
        await w.look()
        _, retired = w.harness.pool.retired[-1]
        assert w.job("hello").code.generation >= retired


async def test_what_is_due_when_the_schedule_is_edited_still_runs(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.harness.timers.stop()
        w.harness.clock.advance(60)
        w.save("jobs/hello.lua", HELLO.replace("1m", "10m"))
        await w.look()
        assert await w.harness.record() == ["hello schedule success"] * 2


async def test_an_edit_that_the_store_refuses_is_taken_up_later(tmp_path: Path) -> None:
    async def refuse(*_: object) -> None:
        raise StoreError("disk full")

    async with world(tmp_path, {"hello": HELLO}) as w:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(w.harness.scheduler, "activate", refuse)
            w.save("jobs/hello.lua", HELLO.replace("1m", "2m"))
            with pytest.raises(StoreError):
                await w.look()
        await w.look()
        assert w.job("hello").cursor.schedule == "every 120000"
        await w.harness.clock.turn(120)
        assert await w.harness.record() == ["hello schedule success"] * 2


async def test_what_is_doubtful_is_told_once_and_shown_with_its_job(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": "htp_get('x')"}) as w:
        with capture_logs() as lines:
            await w.look()
            w.save("jobs/other.luau", "")
            await w.look()
            await w.look()
        told = [line["problem"] for line in lines if line["event"] == "doubtful"]
        assert told == ["jobs/other.luau: is no job: a script's name ends in .lua; expected jobs/other.lua"]
        warning = 'jobs/hello.lua:1: nobody defines htp_get; did you mean "http_get"?'
        assert [str(each) for each in w.job("hello").warnings] == [warning]
        assert warning in [str(each) for each in w.reloader.warnings]

        w.save("jobs/hello.lua", "log('x')")
        await w.look()
        assert w.job("hello").warnings == ()


async def test_of_a_file_that_does_not_compile_nothing_else_is_told(tmp_path: Path) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        w.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 1, "'=' expected")
        w.save("jobs/hello.lua", "htp_get('x') = =")
        await w.look()
        assert w.job("hello").problems
        assert (w.job("hello").warnings, list(w.reloader.warnings)) == ((), [])


async def test_settings_are_read_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, {"hello": HELLO}) as w:
        threads: list[threading.Thread] = []

        read = load_settings

        def note(root: Path, **sources: Any) -> Settings:
            threads.append(threading.current_thread())
            return read(root, **sources)

        monkeypatch.setitem(globals(), "load_settings", note)
        await w.look()
        assert threads
        assert threading.main_thread() not in threads


async def test_hooks_that_can_not_be_executed_are_told_with_what_is_doubtful_about_them(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        save_monitor(w, hooks=HOOKS)
        await w.look()
        w.refusals["jobs/w/hooks.lua"] = "attempt to call a nil value (global 'htp_get')"
        save_monitor(w, hooks=HOOKS + "htp_get(1)")
        await w.look()
        assert errors_of(w.job("watch")) == ["attempt to call a nil value (global 'htp_get')"]
        assert [str(each) for each in w.job("watch").warnings] == [
            'jobs/w/hooks.lua:2: nobody defines htp_get; did you mean "http_get"?'
        ]


async def test_the_server_is_looked_at_too_when_something_changed(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        keeping = w.harness.tasks.create_task(w.reloader.keep_up())
        w.save("server/init.lua", "one")
        w.reloader.wake()
        await until_served(w, b"one")
        w.save("server/init.lua", "two")
        w.reloader.wake()
        await until_served(w, b"two")
        keeping.cancel()


async def test_a_server_that_no_worker_could_be_had_for_is_soon_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path, {}) as w:
        w.harness.pool.broken["server/init.lua"] = lambda: PoolError("no processes left")
        w.save("server/init.lua", "one")
        keeping = w.harness.tasks.create_task(w.reloader.keep_up())
        await w.look()
        assert str(w.endpoints.problem) == "server/init.lua: no processes left"
        w.harness.pool.broken.clear()
        await w.harness.clock.turn(RETRY_S)
        await until_served(w, b"one")
        keeping.cancel()


async def until_served(w: World, source: bytes) -> None:
    async with asyncio.timeout(10):
        while w.endpoints.version is None or w.endpoints.version.code.source != source:
            await w.harness.clock.turn()
            await asyncio.to_thread(lambda: None)
