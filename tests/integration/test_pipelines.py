"""Whole jobs in the manner of sloth-runner's examples: declared by builders and by tables, run on real parts.

Each test is one job as somebody would write it: a release, a nightly load, a round of health checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from spyweb.model import Ending, Failure, JobId, Outcome, Run, TaskRow
from spyweb.views.runs import show_output
from tests.fakes.monitor_project import MonitorProject
from tests.fakes.task_rows import story

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Finished:
    """One run of a job, as its owner would look at it."""

    ending: Ending
    run: Run
    rows: Sequence[TaskRow]
    lines: Sequence[str]

    @property
    def said(self) -> list[str]:
        return [line.removeprefix("info ") for line in self.lines if line.startswith("info ")]

    def output(self, task: str) -> object:
        (row,) = [row for row in self.rows if row.name == task]
        return show_output(row.output)

    def messages(self) -> dict[str, str]:
        return {row.name: row.message for row in self.rows if row.message}


async def run(project: MonitorProject, source: str = "", suffix: str = ".lua") -> Finished:
    """Run the job of this test; with a source, save it first."""
    if source:
        project.save(f"jobs/{project.name}{suffix}", source)
    ending = await project.run()
    (found,) = await project.runtime.store.runs.list(JobId(project.name), limit=1)
    rows = await project.runtime.store.tasks.of_runs([found.id])
    return Finished(ending, found, rows.get(found.id, ()), [line.partition("\n")[0] for line in project.lines])


async def succeed(project: MonitorProject, source: str = "", suffix: str = ".lua") -> Finished:
    finished = await run(project, source, suffix)
    assert finished.ending.outcome is Outcome.SUCCESS, (finished.ending.reason, finished.lines)
    return finished


async def fail(project: MonitorProject, source: str = "", suffix: str = ".lua") -> Finished:
    finished = await run(project, source, suffix)
    assert (finished.ending.outcome, finished.ending.failure) == (Outcome.FAILED, Failure.ERROR), finished.lines
    return finished


async def test_a_release_hands_its_version_from_build_to_push(project: MonitorProject) -> None:
    finished = await succeed(
        project,
        """
        local unit = task("unit_tests")
            :description("Everything that runs in a second")
            :command(function(this) log.info(this.name .. " passed") return true, "212 passed" end)
            :build()

        local build = task("build")
            :description("Make the archive")
            :depends_on({ "unit_tests" })
            :timeout("2m")
            :command(function(this, params)
                local number = state.increment("build:number")
                return true, "built", { version = "2.1." .. number, files = { "app", "app.sig" } }
            end)
            :build()

        local push = task("push")
            :depends_on(build)
            :params({ channel = "stable" })
            :command(function(this, params, input)
                local made = input.build
                log.info(string.format("%s to %s, %d files", made.version, params.channel, #made.files))
                return true, "pushed " .. made.version
            end)
            :build()

        workflow.define("release")
            :description("From tests to the channel")
            :version("1.0.0")
            :tasks({ push, build, unit })
            :config({ timeout = "10m", max_parallel_tasks = 1 })
            :on_start(function() log.info("release begins") return true end)
            :on_complete(function(success, results)
                log.info(success and "released " .. results.build.output.version or "not released")
                return true
            end)
        """,
        ".sloth",
    )
    assert story(finished.rows) == ["push success", "build success", "unit_tests success"]
    assert finished.said == ["release begins", "unit_tests passed", "2.1.1 to stable, 2 files", "released 2.1.1"]
    assert finished.messages() == {"unit_tests": "212 passed", "build": "built", "push": "pushed 2.1.1"}
    assert finished.output("build") == {"version": "2.1.1", "files": ["app", "app.sig"]}
    assert (await succeed(project)).said[-1] == "released 2.1.2"


async def test_a_nightly_load_is_a_table_of_tasks_by_name(project: MonitorProject) -> None:
    project.site.pages["/orders.csv"] = "7,lamp,30\n8,desk,oops\n9,chair,45\n"
    finished = await succeed(
        project,
        """
        db_exec("CREATE TABLE IF NOT EXISTS sale (id INTEGER PRIMARY KEY, what TEXT, price INTEGER)")
        workflow.define("nightly_load", {
            description = "Orders of the day",
            version = "3",
            tasks = {
                extract = { run = function()
                    local response, err = http_get("{site}/orders.csv")
                    if not response then return false, err.error end
                    return true, "fetched", { lines = string.split((response.body:gsub("%s+$", "")), "\\n") }
                end },
                transform = { depends_on = "extract", run = function(this, params, input)
                    local sales, bad = {}, 0
                    for _, line in ipairs(input.extract.lines) do
                        local id, what, price = line:match("^(%d+),(%a+),(%d+)$")
                        if id then table.insert(sales, { tonumber(id), what, tonumber(price) }) else bad = bad + 1 end
                    end
                    return true, bad .. " left out", { sales = sales }
                end },
                load = { depends_on = { "transform" }, run = function(this, params, input)
                    for _, sale in ipairs(input.transform.sales) do
                        db_exec("INSERT OR REPLACE INTO sale VALUES (?, ?, ?)", sale)
                    end
                    return true, nil, { total = db_query("SELECT sum(price) AS total FROM sale")[1].total }
                end },
            },
        })
        """,
    )
    assert [row.name for row in sorted(finished.rows, key=lambda row: row.ended_ms)][-1] == "load"
    assert finished.messages() == {"extract": "fetched", "transform": "1 left out"}
    assert finished.output("load") == {"total": 75}
    assert {row.workflow for row in finished.rows} == {"nightly_load"}


async def test_groups_of_the_older_form_are_workflows_each(project: MonitorProject) -> None:
    finished = await fail(
        project,
        """
        ModernDSLs = {
            warehouse = {
                description = "Stock of the night",
                tasks = {
                    count = { description = "Count", command = function()
                        return true, "counted", { boxes = 12 }
                    end },
                    reorder = { depends_on = "count", command = function(this, params, input)
                        if input.count.boxes < 20 then return false, input.count.boxes .. " boxes are too few" end
                    end },
                },
            },
            mailing = { tasks = { letters = { command = function() log.info("letters sent") return true end } } },
        }
        """,
        ".sloth",
    )
    assert [f"{row.workflow}: {row.name} {row.status}" for row in finished.rows] == [
        "mailing: letters success", "warehouse: count success", "warehouse: reorder failed",
    ]  # fmt: skip
    assert finished.ending.reason == "1 of 3 tasks failed: reorder"
    assert finished.messages()["reorder"] == "12 boxes are too few"


async def test_a_list_of_tasks_of_the_oldest_form_keeps_its_order(project: MonitorProject) -> None:
    finished = await succeed(
        project,
        """
        local function says(word) return function(this) log.info(word .. " " .. this.name) end end
        TaskDefinitions = {
            clean_up = {
                tasks = {
                    { name = "sessions", params = { older_than = 30 },
                      pre_hook = says("before"), post_hook = says("after"),
                      command = function(this, params) return true, "older than " .. params.older_than .. " days" end },
                    { name = "carts", command = function() return true end },
                    { name = "report", depends_on = { "sessions", "carts" }, command = function(this, params, input)
                        return true, "nothing from " .. tostring(input.sessions) end },
                },
            },
        }
        """,
        ".sloth",
    )
    assert story(finished.rows) == ["sessions success", "carts success", "report success"]
    assert finished.said == ["before sessions", "after sessions"]
    assert finished.messages() == {"sessions": "older than 30 days", "report": "nothing from nil"}


async def test_a_failed_deployment_is_rolled_back_by_its_hook(project: MonitorProject) -> None:
    project.site.pages["/chat"] = ""
    finished = await fail(
        project,
        """
        state.set("live", "v1")
        local deploy = task("deploy")
            :params({ version = "v2" })
            :command(function(this, params)
                state.set("previous", state.get("live"))
                state.set("live", params.version)
                return true, "live: " .. params.version
            end):build()
        local smoke = task("smoke_test")
            :depends_on("deploy")
            :command(function() error("the front page is empty") end)
            :on_failure(function(this, params, failed)
                state.set("live", state.get("previous"))
                log.warn(failed.task_name .. ": rolled back to " .. state.get("live"))
            end):build()
        local announce = task("announce"):depends_on("smoke_test"):command(function() log.info("never") end):build()
        workflow.define("deploy_v2"):tasks({ deploy, smoke, announce })
            :on_complete(function(success, results)
                local text = (success and "fine" or "failed") .. ", announce " .. results.announce.status
                http_post("{site}/chat", json_encode({ text = text }), { ["content-type"] = "application/json" })
            end)
        """,
        ".sloth",
    )
    assert [body for _, _, body in project.site.asked] == [b'{"text":"failed, announce skipped"}']
    assert "warn smoke_test: rolled back to v1" in finished.lines
    assert story(finished.rows) == ["deploy success", "smoke_test failed", "announce skipped"]
    assert finished.messages()["smoke_test"].endswith("the front page is empty")


async def test_a_configuration_that_is_the_same_is_unchanged(project: MonitorProject) -> None:
    source = """
        local write = task("write_config"):command(function()
            local wanted = json_encode({ workers = global_store_get("workers") or "2" })
            if fs_read("site.json") == wanted then return true, "the same", { changed = false } end
            fs_overwrite("site.json", wanted)
            return true, "written", { changed = true }
        end):build()
        local reload = task("reload"):depends_on(write)
            :run_if(function(this, params, input) return input.write_config.changed end)
            :command(function() return true, "reloaded" end):build()
        workflow.define("configure"):tasks({ write, reload })
    """
    assert story((await succeed(project, source)).rows) == ["write_config success", "reload success"]
    again = await succeed(project)
    assert story(again.rows) == ["write_config unchanged", "reload skipped"]
    assert again.messages()["write_config"] == "the same"


async def test_steps_that_several_jobs_share_come_from_a_module(project: MonitorProject) -> None:
    project.save(
        "lib/steps.lua",
        """
        local steps = {}
        function steps.fetch(name, url)
            return task(name):description("GET " .. url):command(function(this)
                local response = assert(http_get(url))
                return response.status == 200, this.name .. ": " .. response.status, { size = response.size }
            end):build()
        end
        return steps
        """,
    )
    project.site.pages |= {"/front": "12345", "/about": "123"}
    finished = await succeed(
        project,
        """
        local steps = require("lib.steps")
        local front, about = steps.fetch("front", "{site}/front"), steps.fetch("about", "{site}/about")
        local sum = task("sum"):depends_on({ front, about }):command(function(this, params, input)
            return true, input.front.size + input.about.size .. " bytes"
        end):build()
        workflow.define("sizes"):tasks({ front, about, sum })
        """,
    )
    assert finished.messages() == {"front": "front: 200", "about": "about: 200", "sum": "8 bytes"}


async def test_values_of_the_configuration_say_where_to(project: MonitorProject) -> None:
    project.save(
        "config.toml",
        f"""
        [values]
        environment = "dev"
        web = {{ hosts = ["w1", "w2"], port = 8080 }}
        [jobs.{project.name}.values]
        environment = "production"
        """,
    )
    source = """
        local env = values.environment or "none"
        local deploy = task("deploy_" .. env):command(function()
            local ok = pcall(function() values.environment = "mine" end)
            return true, table.concat(values.web.hosts, "+") .. ":" .. values.web.port .. " " .. tostring(ok)
        end):build()
        local scale = task("scale"):run_if(function() return values.replicas ~= nil end):command(error):build()
        workflow.define("deploy"):tasks({ deploy, scale })
    """
    try:
        finished = await succeed(project, source, ".sloth")
    finally:
        (project.root / "config.toml").unlink()
    assert story(finished.rows) == ["deploy_production success", "scale skipped"]
    assert finished.messages()["deploy_production"] == "w1+w2:8080 false"
