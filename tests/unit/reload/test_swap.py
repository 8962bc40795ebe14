"""A newer version in place of the older one, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from spyweb.endpoints import Endpoints
from spyweb.errors import PoolError, ScriptError, StoreError
from spyweb.lua.session import Code
from spyweb.model import JobId, JobSpec
from spyweb.ops.sources import Sources
from spyweb.permissions.policy import USUAL
from spyweb.reload import proof
from spyweb.reload.proof import Prover
from spyweb.reload.swap import RETRY_S, SECTIONS, Reloader, Renames, ServerReloader, SettingsFile, waiting_for_a_start
from spyweb.runs.live import LiveJob
from spyweb.settings.load import load_settings
from spyweb.settings.sections import Settings
from spyweb.specs.origins import resolve_settings
from tests.fakes.endpoints import make_served, say_hello
from tests.fakes.harness import Harness, StoryListener, harness, make_job
from tests.fakes.rights import bound_by_file_modes, needs_linux

MONITOR = 'name = "Watch"\nurl = "https://example.com"\nselector = "li"\nfields = ["t"]\ninterval = 60\n'
HOOKS = "function before_fetch(request) return request end\n"
HELLO = "-- /// job\n-- every = '1m'\n-- ///\nlog('hello')\n"


@dataclass(slots=True)
class ReloadHarness:
    root: Path
    harness: Harness
    reloader: Reloader
    sources: Sources
    endpoints: Endpoints
    executed: list[Code] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)  # chunk → why it can't be executed
    keeping: set[JobId] = field(default_factory=set)  # jobs that have stored values
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

    async def edit(self, name: str, text: str) -> None:
        self.save(name, text)
        await self.look()

    async def remove(self, name: str) -> None:
        (self.root / name).unlink()
        await self.look()

    async def look_in_vain(self) -> None:
        """Look while the store refuses everything."""
        with self.harness.refused(), pytest.raises(StoreError):
            await self.look()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what a task of the reloader does, also in threads."""
        async with asyncio.timeout(10):
            while not is_so():
                await self.harness.clock.turn()
                await asyncio.to_thread(lambda: None)

    def serves(self, source: bytes) -> bool:
        return self.endpoints.version is not None and self.endpoints.version.code.source == source

    async def require(self, job: str, module: str = "lib.tools", text: str = "return 1\n") -> None:
        """Have a job that requires a module."""
        self.save(f"{module.replace('.', '/')}.lua", text)
        await self.sources.find(JobId(job), 1, f"jobs/{job}", module.encode())

    def job(self, name: str) -> LiveJob:
        found = self.harness.live.find(JobId(name))
        assert found
        return found

    def names(self) -> list[str]:
        return sorted(job.id for job in self.harness.live)


async def find_selector_problem(selector: str, *, of_field: bool = False) -> str | None:
    return f"no CSS: {selector}" if "[" in selector and not of_field else None


@asynccontextmanager
async def reload_harness(root: Path, jobs: Mapping[str, str]) -> AsyncIterator[ReloadHarness]:
    (root / "jobs").mkdir()
    async with harness() as t:
        sources = Sources(root)

        async def execute(spec: JobSpec, code: Code) -> None:
            await h.execute(spec, code)

        def read_settings() -> Settings:
            return load_settings(root, environ={}, flags={})

        async def keeps_values(job: JobId) -> bool:
            return job in h.keeping

        prover = Prover(
            pool=t.pool, sources=sources, load=execute, find_selector_problem=find_selector_problem, clock=t.clock
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
            server=ServerReloader(root=root, endpoints=endpoints, prover=prover),
            renames=Renames(keeps_values),
            clock=t.clock,
        )
        h = ReloadHarness(root=root, harness=t, reloader=reloader, sources=sources, endpoints=endpoints)
        for name, text in jobs.items():
            h.save(f"jobs/{name}.lua", text)
        await reloader.load({})
        t.timers.start()
        await t.clock.turn(1)
        yield h


@pytest.fixture(name="h")
async def hello_project(tmp_path: Path) -> AsyncIterator[ReloadHarness]:
    async with reload_harness(tmp_path, {"hello": HELLO}) as opened:
        yield opened


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[ReloadHarness]:
    """A project without jobs."""
    async with reload_harness(tmp_path, {}) as opened:
        yield opened


def errors_of(job: LiveJob) -> Sequence[str]:
    return [problem.reason for problem in job.problems]


@pytest.mark.parametrize("edit", ["", "log('renamed and edited')\n"])
async def test_a_job_that_was_renamed_is_told_how_to_get_its_values(tmp_path: Path, edit: str) -> None:
    async with reload_harness(tmp_path, {"shop": HELLO, "other": HELLO + "-- other\n"}) as h:
        h.keeping.add(JobId("shop"))
        (tmp_path / "jobs/shop.lua").unlink()
        h.save("jobs/store.lua", HELLO + edit)
        with capture_logs() as lines:
            await h.look()
        (warning,) = h.job("store").warnings
        assert warning.reason.endswith(", `spyweb state move shop store` moves its stored values")
        assert [line["problem"] for line in lines if "renamed" in line["event"]] == [warning.reason]
        h.keeping.clear()
        await h.look()
        assert h.job("store").warnings == (), "its values are moved"


async def test_a_new_job_beside_one_that_keeps_nothing_is_not_taken_for_it(tmp_path: Path) -> None:
    async with reload_harness(tmp_path, {"shop": HELLO}) as h:
        (tmp_path / "jobs/shop.lua").unlink()
        await h.edit("jobs/store.lua", HELLO)
        assert h.job("store").warnings == ()


async def test_an_edit_swaps_the_code_and_keeps_cursor_and_cadence(h: ReloadHarness) -> None:
    cursor = h.job("hello").cursor
    await h.edit("jobs/hello.lua", HELLO + "log('again')\n")
    job = h.job("hello")
    assert (job.code.generation, job.cursor) == (2, cursor)
    assert b"again" in job.code.source
    assert (JobId("hello"), 2) in h.harness.pool.retired


async def test_a_broken_save_leaves_the_old_version_running_and_shows_why_until_repaired(h: ReloadHarness) -> None:
    h.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "'=' expected")
    await h.edit("jobs/hello.lua", HELLO + "oops oops\n")
    assert h.job("hello").code.generation == 1
    assert errors_of(h.job("hello")) == ["'=' expected"]
    await h.harness.clock.turn(60)
    assert len(await h.harness.record()) == 2
    h.harness.pool.broken.clear()
    await h.edit("jobs/hello.lua", HELLO + "log('fine')\n")
    assert h.job("hello").code.generation == 2
    assert errors_of(h.job("hello")) == []


async def test_a_change_of_settings_alone_keeps_the_vm(h: ReloadHarness) -> None:
    await h.edit("config.toml", "[jobs.hello]\nevery = '2m'\n")
    assert h.job("hello").code.generation == 1
    await h.harness.clock.turn(61)
    assert len(await h.harness.record()) == 1
    await h.harness.clock.turn(60)
    assert len(await h.harness.record()) == 2


async def test_where_the_settings_of_a_job_come_from_is_that_of_the_version_that_lives(h: ReloadHarness) -> None:
    def place_of_every() -> str:
        found = resolve_settings(h.job("hello").spec, h.job("hello").sources, USUAL)
        return {setting.key: setting.words for setting in found}["every"]

    assert place_of_every() == "jobs/hello.lua:2"
    await h.edit("jobs/hello.lua", HELLO.replace("-- every", "-- # a line more\n-- every"))
    assert place_of_every() == "jobs/hello.lua:3"
    await h.edit("jobs/hello.lua", HELLO.replace("every", "evry"))
    assert place_of_every() == "jobs/hello.lua:3"


async def test_a_job_that_never_could_be_loaded_is_awaited_until_it_can_be_or_is_gone(tmp_path: Path) -> None:
    async with reload_harness(tmp_path, {"hello": HELLO, "oops": "-- /// job\n"}) as h:
        assert h.harness.live.unloadable == {"oops", "jobs/oops.lua"}
        h.save("jobs/oops.lua", HELLO)
        await h.edit("jobs/hello.lua", "-- /// job\n")
        assert h.harness.live.unloadable == frozenset(), "the old version of hello lives on"
        await h.edit("jobs/more.lua", "-- /// job\n")
        assert h.harness.live.unloadable == {"more", "jobs/more.lua"}
        await h.remove("jobs/more.lua")
        assert h.harness.live.unloadable == frozenset()


async def test_an_edit_of_the_settings_alone_is_told_to_whoever_depends_on_them(h: ReloadHarness) -> None:
    seen: list[object] = []
    h.harness.live.on_linked(lambda: seen.append(h.reloader.settings.state.history))
    await h.edit("config.toml", "[state.history]\nstate = 3\n")
    await h.look()
    assert len(seen) == 1
    assert "state" in str(seen[0])


async def test_a_luau_construct_that_does_not_compile_is_named(h: ReloadHarness) -> None:
    h.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 5, "syntax error near '+'")
    await h.edit("jobs/hello.lua", HELLO + "count += 1\n")
    assert errors_of(h.job("hello")) == ["syntax error near '+' (`+=` is Luau, not Lua 5.4: write count = count + 1)"]


async def test_a_file_that_comes_back_after_its_deactivation_was_refused_is_due_as_before(
    h: ReloadHarness, tmp_path: Path
) -> None:
    (tmp_path / "jobs/hello.lua").unlink()
    await h.look_in_vain()
    await h.edit("jobs/hello.lua", HELLO)
    await h.harness.clock.turn(60)
    assert await h.harness.record() == ["hello schedule success"] * 2


async def test_an_edit_that_the_store_refuses_forgets_no_pause_that_comes_before_the_next_try(h: ReloadHarness) -> None:
    h.save("jobs/hello.lua", HELLO + "log('again')\n")
    await h.look_in_vain()
    await h.harness.scheduler.pause(h.job("hello"))
    await h.look()
    await h.harness.clock.turn(600)
    assert h.job("hello").cursor.paused
    assert await h.harness.record() == ["hello schedule success"]


@pytest.mark.parametrize("is_gone_meanwhile", [False, True])
async def test_a_new_job_that_is_edited_before_the_store_takes_it_is_not_due_since_1970(
    bare: ReloadHarness, is_gone_meanwhile: bool
) -> None:
    bare.save("jobs/hello.lua", HELLO)
    await bare.look_in_vain()
    if is_gone_meanwhile:
        await bare.remove("jobs/hello.lua")
    await bare.edit("jobs/hello.lua", HELLO + "log('again')\n")
    await bare.harness.clock.turn(1)
    assert await bare.harness.record() == ["hello schedule success"]


async def test_a_job_that_comes_back_is_due_again_and_its_absence_is_one_record(h: ReloadHarness) -> None:
    last = h.job("hello").last
    await h.remove("jobs/hello.lua")
    assert h.names() == []
    await h.harness.clock.turn(300)
    await h.edit("jobs/hello.lua", HELLO)
    _, retired = h.harness.pool.retired[-1]
    assert h.job("hello").code.generation >= retired, "the pool drops the VMs of versions below"
    assert h.job("hello").last == last is not None
    await h.harness.clock.turn(60)
    assert await h.harness.record() == ["hello schedule success", "hello schedule paused x5", "hello schedule success"]


async def test_an_edited_module_reloads_just_the_jobs_that_loaded_it_and_none_where_it_is_broken(
    tmp_path: Path,
) -> None:
    async with reload_harness(tmp_path, {"a": HELLO, "b": HELLO}) as h:
        await h.require("a")
        h.harness.pool.broken["lib/tools.lua"] = lambda: ScriptError("lib/tools.lua", 1, "no")
        await h.edit("lib/tools.lua", "return return\n")
        assert (h.job("a").code.generation, errors_of(h.job("a"))) == (1, ["no"])
        h.harness.pool.broken.clear()
        await h.edit("lib/tools.lua", "return 2\n")
        assert (h.job("a").code.generation, h.job("b").code.generation) == (2, 1)


@needs_linux
async def test_a_module_that_may_not_be_read_any_more_keeps_the_old_version_of_its_job(tmp_path: Path) -> None:
    with bound_by_file_modes():  # for the threads too, that look at files
        async with reload_harness(tmp_path, {"a": HELLO, "b": HELLO}) as h:
            await h.require("a")
            (tmp_path / "lib/tools.lua").chmod(0)
            await h.edit("jobs/b.lua", HELLO + "log(2)\n")
            assert (h.job("a").code.generation, h.job("b").code.generation) == (1, 2)
            assert errors_of(h.job("a")) == ["Permission denied"]
            (tmp_path / "lib/tools.lua").chmod(0o600)
            await h.look()
            assert errors_of(h.job("a")) == []


@needs_linux
async def test_a_project_that_may_not_be_entered_for_a_moment_keeps_its_jobs(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with bound_by_file_modes():
        async with reload_harness(root, {"a": HELLO}) as h:
            root.chmod(0)
            await h.look()
            assert h.job("a").code.generation == 1
            root.chmod(0o700)
            await h.look()
            assert h.job("a").code.generation == 1


@pytest.mark.parametrize("text", ["", "[daemon\n"])
async def test_settings_that_stay_broken_are_told_once_however_often_anybody_looks(h: ReloadHarness, text: str) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            await h.edit("config.toml", text)
        await h.edit("config.toml", "[daemon]\n")
        await h.edit("config.toml", text)
    assert [line["event"] for line in lines] == ["settings not reloaded"] * 2


RULE = '[[maintenance]]\ncron = "0 3 * * *"\nduration = "2h"\n'


async def test_maintenance_follows_the_file_and_a_wrong_edit_leaves_it_as_it_was(h: ReloadHarness) -> None:
    links: list[int] = []
    h.harness.live.on_linked(lambda: links.append(len(h.reloader.maintenance.rules)))
    await h.edit("config.toml", RULE)
    assert links[-1] == 1, "whoever goes by it is told when it is in effect"
    before = h.reloader.maintenance
    await h.edit("config.toml", RULE + RULE.replace("2h", "2x"))
    assert h.reloader.maintenance is before
    assert [str(problem) for problem in h.reloader.problems] == [
        """config.toml:6: maintenance[2].duration: expected a number of seconds, or text such as "1h30m" or """
        """"250ms", not '2x'"""
    ]
    await h.edit("config.toml", RULE + RULE.replace("0 3", "0 4"))
    assert len(h.reloader.maintenance.rules) == 2
    await h.remove("config.toml")
    assert (len(h.reloader.maintenance.rules), links[-1]) == (0, 0)


async def test_at_the_start_the_rules_hold_that_are_right(h: ReloadHarness, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(RULE + RULE.replace("2h", "2x"))
    await h.look()
    assert len(h.reloader.maintenance.rules) == 1


async def test_settings_that_take_a_start_are_told_once(h: ReloadHarness) -> None:
    h.save("config.toml", "[server]\nport = 1\n")
    with capture_logs() as lines:
        await h.look()
        await h.look()
        await h.remove("config.toml")
    waiting = [line["settings"] for line in lines if line["event"] == "settings take effect at the next start"]
    assert waiting == [["server.port"]]


def save_monitor(h: ReloadHarness, name: str = "w", settings: str = MONITOR, **files: str) -> None:
    h.save(f"jobs/{name}/config.toml", settings)
    for file, text in files.items():
        h.save(f"jobs/{name}/{file}.lua", text)


async def edit_monitor(h: ReloadHarness, settings: str = MONITOR, **files: str) -> None:
    save_monitor(h, settings=settings, **files)
    await h.look()


async def test_a_monitors_files_are_executed_in_the_version_that_then_lives(bare: ReloadHarness) -> None:
    await edit_monitor(bare, hooks=HOOKS, defer="x = 1")
    (executed,) = bare.executed
    assert executed == bare.job("watch").code
    assert (executed.chunk, executed.more) == ("jobs/w/hooks.lua", (("jobs/w/defer.lua", b"x = 1"),))


async def test_hooks_that_fail_leave_the_old_version_running_and_show_why(bare: ReloadHarness) -> None:
    await edit_monitor(bare, hooks=HOOKS)
    bare.refusals["jobs/w/hooks.lua"] = "boom"
    await bare.edit("jobs/w/hooks.lua", HOOKS + "error('boom')\n")
    assert bare.job("watch").code == bare.executed[0]
    assert errors_of(bare.job("watch")) == ["boom"]
    assert bare.harness.pool.discarded == [(JobId("watch"), 2)]
    bare.refusals.clear()
    await bare.edit("jobs/w/hooks.lua", HOOKS + "-- repaired\n")
    assert bare.job("watch").code.generation == 3
    assert errors_of(bare.job("watch")) == []


async def test_what_is_new_and_broken_does_not_live_until_it_is_mended(bare: ReloadHarness) -> None:
    bare.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 1, "no")
    bare.refusals["jobs/w/hooks.lua"] = "boom"
    bare.save("jobs/hello.lua", HELLO)
    await edit_monitor(bare, hooks=HOOKS)
    assert bare.names() == []
    broken = {job: [problem.reason for problem in problems] for job, problems in bare.reloader.broken.items()}
    assert broken == {"hello": ["no"], "watch": ["boom"]}
    bare.harness.pool.broken.clear()
    await bare.look()
    assert bare.names() == ["hello"]


async def test_files_that_failed_are_executed_again_when_something_changes_or_after_a_while(
    bare: ReloadHarness,
) -> None:
    bare.refusals["jobs/w/hooks.lua"] = "boom"
    bare.save("lib/tools.lua", "return 1\n")
    await edit_monitor(bare, hooks=HOOKS)
    await bare.sources.find(JobId("watch"), 1, "jobs/w", b"lib.tools")
    await bare.look()
    assert len(bare.executed) == 1
    await bare.edit("lib/tools.lua", "return 2\n")
    assert len(bare.executed) == 2
    await bare.harness.clock.turn(proof.RETRY_S + 1)
    bare.refusals.clear()
    await bare.look()
    assert bare.names() == ["watch"]


@pytest.mark.parametrize("file", ["jobs/hello.lua", "server/init.lua", "jobs/w/hooks.lua"])
async def test_what_no_worker_could_be_had_for_is_soon_tried_again(bare: ReloadHarness, file: str) -> None:
    if file.endswith("hooks.lua"):  # it is the worker that executes it which is lost
        bare.refusals[file], bare.lost = "no processes left", True
        save_monitor(bare, hooks=HOOKS)
    else:
        bare.harness.pool.broken[file] = lambda: PoolError("no processes left")
        bare.save(file, HELLO)
    keeping = bare.harness.tasks.create_task(bare.reloader.keep_up())
    await bare.look()
    shown = [*(each for found in bare.reloader.broken.values() for each in found), bare.endpoints.problem]
    assert [each.reason for each in shown if each] == ["no processes left"]
    bare.refusals.clear()
    bare.harness.pool.broken.clear()
    await bare.harness.clock.turn(RETRY_S)
    await bare.until(lambda: bool(bare.names() or bare.endpoints.version))
    keeping.cancel()


async def test_a_disabled_monitor_is_executed_once_it_is_enabled(bare: ReloadHarness) -> None:
    await edit_monitor(bare, settings=MONITOR + "enabled = false\n", hooks=HOOKS)
    assert (bare.names(), bare.executed) == (["watch"], [])
    bare.refusals["jobs/w/hooks.lua"] = "boom"
    await edit_monitor(bare)
    assert not bare.job("watch").spec.enabled
    bare.refusals.clear()
    await bare.edit("jobs/w/hooks.lua", HOOKS + "-- repaired\n")
    assert bare.job("watch").spec.enabled


async def test_slow_hooks_do_not_hold_up_the_jobs_that_need_none(bare: ReloadHarness) -> None:
    seen: list[list[str]] = []
    bare.while_executing = lambda: seen.append(bare.names())
    save_monitor(bare, hooks=HOOKS)
    await bare.edit("jobs/hello.lua", HELLO)
    assert (seen, bare.names()) == ([["hello"]], ["hello", "watch"])


async def test_a_selector_that_nobody_can_parse_leaves_the_old_version_running(bare: ReloadHarness) -> None:
    await edit_monitor(bare)
    await edit_monitor(bare, settings=MONITOR.replace('"li"', '"li["'))
    monitor = bare.job("watch").spec.monitor
    assert monitor
    assert monitor.selector == "li"
    assert [str(problem) for problem in bare.job("watch").problems] == ["jobs/w/config.toml:3: selector: no CSS: li["]


@pytest.mark.parametrize("text", ["", " \n", '-- /// job\n-- name = "Price Watch"\n'])
async def test_a_job_whose_file_is_cut_short_goes_on_under_its_own_name(tmp_path: Path, text: str) -> None:
    named = '-- /// job\n-- name = "Price Watch"\n-- every = "1m"\n-- ///\n'
    async with reload_harness(tmp_path, {"a": named}) as h:
        await h.edit("jobs/a.lua", text)
        assert (h.names(), list(h.reloader.broken)) == (["price_watch"], ["price_watch"])
        assert errors_of(h.job("price_watch"))
        await h.harness.clock.turn(60)
        await h.edit("jobs/a.lua", named)
        assert errors_of(h.job("price_watch")) == []
        assert await h.harness.record() == ["price_watch schedule success"] * 2


async def test_jobs_of_a_list_that_is_cut_short_go_on(h: ReloadHarness) -> None:
    listed = "".join(f"[[jobs]]\n{MONITOR.replace('Watch', name)}" for name in ("One", "Two"))
    await h.edit("jobs.toml", listed)
    for text in ("", listed[:-5], "[[jobs]]\n"):
        await h.edit("jobs.toml", text)
        assert h.names() == ["hello", "one", "two"]
        assert errors_of(h.job("one"))
        assert errors_of(h.job("two"))
        assert list(h.reloader.broken) == ["one", "two"]
    await h.edit("jobs.toml", f"[[jobs]]\n{MONITOR}")
    assert h.names() == ["hello", "watch"]


async def test_settings_that_are_cut_short_stay_in_force(h: ReloadHarness) -> None:
    await h.edit("config.toml", "[jobs.hello]\nenabled = false\n")
    await h.edit("config.toml", " \n")
    assert not h.job("hello").spec.enabled


async def test_a_folder_that_becomes_two_kinds_of_job_keeps_the_one_it_was(tmp_path: Path) -> None:
    async with reload_harness(tmp_path, {"w/init": HELLO}) as h:
        await edit_monitor(h)
        assert h.names() == ["w"]
        assert "holds both" in errors_of(h.job("w"))[0]


async def test_a_run_that_spans_a_reload_requires_the_modules_of_its_version(tmp_path: Path) -> None:
    source = "-- /// job\n-- every = '1m'\n-- ///\nsleep(9000) require('lib') -- "
    async with reload_harness(tmp_path, {"a": f"{source}1"}) as h:

        async def required(generation: int) -> bytes | None:
            module = await h.sources.find(JobId("a"), generation, "jobs/a", b"lib")
            return module.source if module else None

        h.save("lib.lua", "return 1")
        await h.edit("jobs/a.lua", f"{source}2")
        h.harness.pool.held.add(JobId("a"))
        await h.harness.clock.turn(61)
        for version in (2, 3):
            h.save("lib.lua", f"return {version}")
            await h.edit("jobs/a.lua", f"{source}{version + 1}")
        assert [await required(generation) for generation in (2, 4)] == [b"return 1", b"return 3"]
        assert not h.sources.dependencies(JobId("a"), 3), "no run of it is under way"


async def test_an_edit_that_the_store_refuses_is_taken_up_later(h: ReloadHarness) -> None:
    h.save("jobs/hello.lua", HELLO.replace("1m", "2m"))
    await h.look_in_vain()
    await h.look()
    assert h.job("hello").cursor.schedule == "every 120000"
    await h.harness.clock.turn(120)
    assert await h.harness.record() == ["hello schedule success"] * 2


async def test_what_is_doubtful_is_told_once_and_shown_with_its_job(tmp_path: Path) -> None:
    async with reload_harness(tmp_path, {"hello": "htp_get('x')"}) as h:
        with capture_logs() as lines:
            await h.look()
            await h.edit("jobs/other.luau", "")
            await h.look()
        told = [line["problem"] for line in lines if line["event"] == "doubtful"]
        assert told == ["jobs/other.luau: is no job: a script's name ends in .lua; expected jobs/other.lua"]
        warning = 'jobs/hello.lua:1: undefined name htp_get; did you mean "http_get"?'
        assert [str(each) for each in h.job("hello").warnings] == [warning]
        assert warning in [str(each) for each in h.reloader.warnings]

        await h.edit("jobs/hello.lua", "log('x')")
        assert h.job("hello").warnings == ()


async def test_of_a_file_that_does_not_compile_nothing_else_is_told(h: ReloadHarness) -> None:
    h.harness.pool.broken["jobs/hello.lua"] = lambda: ScriptError("jobs/hello.lua", 1, "'=' expected")
    await h.edit("jobs/hello.lua", "htp_get('x') = =")
    assert h.job("hello").problems
    assert (h.job("hello").warnings, list(h.reloader.warnings)) == ((), [])


async def test_hooks_that_can_not_be_executed_are_told_with_what_is_doubtful_about_them(bare: ReloadHarness) -> None:
    await edit_monitor(bare, hooks=HOOKS)
    bare.refusals["jobs/w/hooks.lua"] = "attempt to call a nil value (global 'htp_get')"
    await edit_monitor(bare, hooks=HOOKS + "htp_get(1)")
    assert errors_of(bare.job("watch")) == ["attempt to call a nil value (global 'htp_get')"]
    assert [str(each) for each in bare.job("watch").warnings] == [
        'jobs/w/hooks.lua:2: undefined name htp_get; did you mean "http_get"?'
    ]


async def test_the_server_is_looked_at_too_when_something_changed(bare: ReloadHarness) -> None:
    keeping = bare.harness.tasks.create_task(bare.reloader.keep_up())
    bare.save("server/init.lua", "one")
    bare.reloader.wake()
    await bare.until(lambda: bare.serves(b"one"))
    bare.save("server/init.lua", "two")
    bare.reloader.wake()
    await bare.until(lambda: bare.serves(b"two"))
    keeping.cancel()


async def test_whoever_listens_is_told_what_becomes_of_jobs(bare: ReloadHarness) -> None:
    bare.harness.live.listener = listener = StoryListener()
    await bare.edit("jobs/a.lua", HELLO)
    assert [line for line in listener.story if line.startswith("a ")] == ["a loaded"]
    for text, reason in (("-- 1", ""), ("-- 2", "oops"), ("-- 3", "oops again"), ("-- 4", "")):
        bare.harness.pool.broken.clear()
        if reason:
            bare.harness.pool.broken["jobs/a.lua"] = partial(ScriptError, "jobs/a.lua", 5, reason)
        await bare.edit("jobs/a.lua", HELLO + text)
    await bare.edit("jobs/a.lua", HELLO.replace("1m", "2m") + "-- 4")
    await bare.remove("jobs/a.lua")
    told = [line.removeprefix("a ") for line in listener.story if line.startswith("a ")]
    assert told[:4] == ["loaded", "reloaded", "broken: jobs/a.lua:5: oops", "broken: jobs/a.lua:5: oops again"]
    assert told[4:] == ["reloaded", "mended", "settings", "removed"]


SHOP = JobId("shop")


async def always(_job: JobId) -> bool:
    return True


def a_job(name: str, digest: str) -> LiveJob:
    return replace(make_job(name), digest=digest)


async def told(renames: Renames, *new: LiveJob, gone: tuple[JobId, ...] = ()) -> list[str]:
    await renames.look(new, gone)
    assert [job.warnings for job in new] == [renames.warnings(job) for job in new]
    return [job.id for job in new if job.warnings]


async def test_a_job_that_comes_back_under_its_own_name_is_not_renamed() -> None:
    renames = Renames(always)
    renames.note_gone(a_job("shop", "a"))
    assert await told(renames, a_job("shop", "a"), gone=(SHOP,)) == []


async def test_of_several_that_come_and_go_together_one_is_known_by_its_content_and_none_is_guessed() -> None:
    renames = Renames(always)
    renames.note_gone(a_job("shop", "c"))
    assert await told(renames, a_job("store", "c"), a_job("w", "d"), gone=(SHOP,)) == ["store"]
    assert await told(renames, a_job("x", "a"), a_job("y", "b"), gone=(SHOP,)) == []
    assert await told(renames, a_job("z", "c"), gone=(SHOP,)) == ["z"]


def settings(root: Path, text: str) -> Settings:
    (root / "config.toml").write_text(text)
    return load_settings(root, environ={}, flags={})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[server]\nport = 1\n", ["server.port"]),
        ('[daemon]\nshutdown_grace = "1s"\nlog_level = "debug"\n', ["daemon.shutdown_grace", "daemon.log_level"]),
        ('[daemon]\ndefault_interval = "1s"\n[state.history]\nstate = 3\n[runs]\nkeep = 1\n', []),
        ('[defaults]\ntimeout = "1s"\n[jobs.a]\nenabled = false\n', []),
        ("[http]\ndeny_private = true\n[security]\nenv_deny = ['A']\n", ["http.deny_private", "security.env_deny"]),
    ],
)
def test_those_that_need_a_start_are_named_as_in_the_file(tmp_path: Path, text: str, names: list[str]) -> None:
    before, now = settings(tmp_path, "# nothing\n"), settings(tmp_path, text)
    assert waiting_for_a_start(before, now) == names
    assert waiting_for_a_start(now, now) == []


def test_every_section_is_there(tmp_path: Path) -> None:
    assert all(hasattr(settings(tmp_path, "# nothing\n"), section) for section in SECTIONS)
