"""A project's tests in real workers, on real temporary databases; the command is left out."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spyweb.daemon.testing import Selection, run_tests
from spyweb.errors import ConfigError, Refused
from spyweb.reference.language import TABLES
from spyweb.testing.results import CaseResult, Report

MONITOR = 'name = "The Shop"\nurl = "https://example.org"\nselector = "li"\nfields = ["title:a"]\nenabled = false\n'


@dataclass
class Progress:
    counts: dict[str, int] = field(default_factory=dict)

    def found(self, suite: str, tests: int) -> None:
        self.counts[suite] = tests

    def ended(self, result: CaseResult) -> None:
        pass


@dataclass
class LuaTestProject:
    """A project whose one monitor has the tests that are given."""

    root: Path

    def save(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def shop(self, tests: str, hooks: str = "", defer: str = "") -> None:
        self.save("jobs/shop/config.toml", MONITOR)
        self.save("jobs/shop/tests.lua", tests)
        for name, text in (("hooks", hooks), ("defer", defer)):
            if text:
                self.save(f"jobs/shop/{name}.lua", text)

    async def run(self, job: str | None = None, pattern: str = "", *, virtual: bool = False) -> Report:
        return await run_tests(self.root, Selection(job=job, pattern=pattern, virtual_time=virtual), Progress())

    async def outcomes(self, job: str | None = None, *, virtual: bool = False) -> dict[str, str]:
        """What went wrong with each test."""
        report = await self.run(job, virtual=virtual)
        return {result.test: result.reason for result in report.results}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LuaTestProject:
    """Temporary databases are made where the test can look for what is left of them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "project" / "jobs").mkdir(parents=True)
    return LuaTestProject(tmp_path / "project")


async def test_each_test_has_globals_and_a_database_of_its_own(project: LuaTestProject) -> None:
    project.shop(
        """
        count = (count or 0) + 1
        store_set("loaded", "yes")
        local function look()
          spyweb.assert_eq(count, 1)
          spyweb.assert_eq(store_get("loaded"), "yes")
          spyweb.assert_eq(store_get("left"), nil)
          spyweb.assert_eq(state.get("left"), nil)
          spyweb.assert_eq(db_exec("CREATE TABLE mine (a)"), 0)
          count = count + 1
          store_set("left", "x")
          state.set("left", 1)
        end
        test_a, test_b = look, look
        """
    )
    assert await project.outcomes() == {"test_a": "", "test_b": ""}
    assert os.listdir(project.root) == ["jobs"], "the project's own data are not touched"
    assert os.listdir(project.root.parent / "tmp") == [], "nothing is left behind"


async def test_all_files_of_a_job_are_there_and_hooks_can_be_called(project: LuaTestProject) -> None:
    project.save("lib/units.lua", "return { fetch = function() return http_get('https://example.org/rate').body end }")
    project.shop(
        hooks="local units = require('lib.units') function rate() return units.fetch() end",
        defer="function on_finally(ctx) ctx.shared.over = true store_set('over', 'yes') end",
        tests="""
        function test_a_mock_reaches_modules()
          http_get = function(url) return { status = 200, body = url } end
          spyweb.assert_eq(rate(), "https://example.org/rate")
        end
        function test_a_hook_is_called(ctx)
          on_finally(ctx)
          spyweb.assert_eq({ ctx.shared.over, store_get("over") }, { true, "yes" })
          spyweb.assert_eq({ ctx.worker_id, ctx.job }, { 1, "the_shop" })
        end
        """,
    )
    assert await project.outcomes("The Shop") == {"test_a_hook_is_called": "", "test_a_mock_reaches_modules": ""}


async def test_sql_sees_the_engines_views_as_in_the_daemon(project: LuaTestProject) -> None:
    project.shop(
        """
        function test_views()
          store_set("k", "v")
          global_store_set("g", "w")
          spyweb.assert_eq(db_query("SELECT key, value FROM lua_user ORDER BY key"),
            { { key = "g", value = "w" }, { key = "the_shop:k", value = "v" } })
          spyweb.assert_eq(db_query("SELECT count(*) AS n FROM records"), { { n = 0 } })
          db_exec("CREATE TABLE t (a)")
          db_exec("INSERT INTO t VALUES (?)", { 5 })
          spyweb.assert_eq(db_query("SELECT last_insert_rowid() AS id FROM t"), { { id = 1 } })
        end
        """
    )
    assert await project.outcomes() == {"test_views": ""}


async def test_tables_have_the_fields_that_the_reference_lists(project: LuaTestProject) -> None:
    """Those that only a store can make."""
    project.shop(
        """
        local function names(t)
          local found = {}
          for name in pairs(t) do found[#found + 1] = name end
          table.sort(found)
          return table.concat(found, " ")
        end
        function test_fields()
          state.set("a", 1)
          log(names(state.stats()))
          log(names(state.history("a")[1]))
          log(names(state.set{ scope = "s", key = "k", value = 1 }))
        end
        """
    )
    (result,) = (await project.run()).results
    known = {table.name: {field.name for field in table.fields} for table in TABLES.values()}
    stats, version, change = (set(line.text.split()) for line in result.output)

    assert (stats, version) == (known["StateStats"], known["StateVersion"])
    assert change <= known["StateChange"]


async def test_virtual_time_is_one_for_all_functions_side_by_side_and_for_what_expires(project: LuaTestProject) -> None:
    project.shop(
        """
        function test_two_sleeps_are_one()
          local began = os.time()
          parallel(function() sleep(3600 * 1000) end, function() sleep(3600 * 1000) end)
          local took = os.time() - began -- with the real time that it took
          spyweb.assert_eq(took >= 3600 and took < 7200, true, took)
        end
        function test_they_wake_in_the_order_of_their_times()
          local order = {}
          local function nap(name, ...)
            local naps = {...}
            return function()
              for _, s in ipairs(naps) do sleep(s * 1000) order[#order + 1] = name end
            end
          end
          parallel(nap("a", 60, 60), nap("b", 30, 60), nap("c", 100))
          spyweb.assert_eq(table.concat(order), "babca")
        end
        function test_what_expires_does_so_for_the_store_too()
          state.set("brief", 1, 60)
          parallel_map({3600, 1800}, function(s) sleep(s * 1000) end)
          spyweb.assert_eq(state.get("brief"), nil)
          state.set("long", 1, 1801)
          parallel_map({1800, 900}, function(s) sleep(s * 1000) end)
          spyweb.assert_eq(state.get("long"), 1)
        end
        function test_a_lock_outlasts_it()
          state.lock("l", 5)
          sleep(86400 * 1000)
          spyweb.assert_eq(state.is_locked("l"), true)
        end
        function test_ops_come_before_sleeps()
          local order = {}
          parallel(function()
            sleep(1000)
            order[#order + 1] = "slept"
          end, function()
            for i = 1, 20 do store_set("k", i) end
            order[#order + 1] = "stored"
          end)
          spyweb.assert_eq(table.concat(order, " "), "stored slept")
        end
        """
    )
    report = await project.run(virtual=True)
    assert [result.reason for result in report.results] == [""] * 5
    assert report.duration_ms < 15_000


async def test_nothing_to_run_is_refused(project: LuaTestProject) -> None:
    with pytest.raises(Refused, match="there are no tests: a test is a global function"):
        await project.run()
    project.shop("function test_x() end")
    with pytest.raises(Refused, match="no test of the_shop has 'nothing' in its name"):
        await project.run("the_shop", "nothing")
    project.save("config.toml", "[daemon]\nworkers = 0\n")
    with pytest.raises(ConfigError):
        await project.run()


async def test_the_server_runs_on_a_free_port_with_one_database_for_all(project: LuaTestProject) -> None:
    project.save(
        "server/init.lua",
        """
        function format_price(price) return ("$%.2f"):format(price) end
        get.hello = function(self)
          log("asked")
          store_set("seen", self.method)
          return { status = 201, body = "Hello!" }
        end
        function public.get:status() return "up" end
        function get:boom() error("no luck") end
        """,
    )
    project.save(
        "server/tests.lua",
        """
        local base = "http://127.0.0.1:" .. SERVER_PORT
        local function ask(path) return http_get(base .. path) end
        function test_0_what_is_built_in()
          spyweb.assert_eq(json_decode(ask("/api/jobs").body)[1].name, "The Shop")
          spyweb.assert_eq(json_decode(ask("/api/records").body), {})
          spyweb.assert_eq(ask("/page.txt").body, "a page")
        end
        function test_1_helpers() spyweb.assert_eq(format_price(5), "$5.00") end
        function test_2_over_http()
          local response = ask("/api/v/hello")
          spyweb.assert_eq({ response.status, response.body }, { 201, "Hello!" })
        end
        function test_3_shares_the_database() spyweb.assert_eq(store_get("seen"), "GET") end
        function test_4_directly() spyweb.assert_eq(get.hello({ method = "direct" }).status, 201) end
        function test_5_public() spyweb.assert_eq(ask("/api/public/status").body, "up") end
        function test_6_unknown() spyweb.assert_eq(ask("/api/v/nothing").status, 404) end
        function test_7_boom() spyweb.assert_eq(ask("/api/v/boom").status, 200) end
        """,
    )
    project.save("config.toml", "[http]\ndeny_private = true\n")
    project.save("ui/page.txt", "a page")
    project.shop("")
    report = await project.run("server")

    by_name = {result.test: result for result in report.results}
    assert [name for name, result in by_name.items() if not result.passed] == ["test_7_boom"], by_name
    assert [line.text for line in by_name["test_2_over_http"].output] == ["asked"]
    (heard,) = by_name["test_7_boom"].output
    assert heard.text.startswith("GET /api/v/boom: server/init.lua:9: no luck")
    assert sorted(os.listdir(project.root / "server")) == ["init.lua", "tests.lua"], "its log files are the daemon's"
