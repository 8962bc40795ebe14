"""Whole jobs in the manner of sloth-runner's examples: declared by builders and by tables, run on real parts.

Each test is one job as somebody would write it: a release, a nightly load, a round of health checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from aiohttp import web

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


async def test_an_upload_is_tried_again_until_the_server_takes_it(project: MonitorProject) -> None:
    project.site.series["/upload"] = [web.Response(status=503), web.Response(status=429), web.Response(status=201)]
    finished = await succeed(
        project,
        """
        task("upload")
            :retries(4, "linear")
            :retry_delay("4ms")
            :timeout("20s")
            :command(function(this)
                local response = assert(http_post("{site}/upload", "attempt " .. this.attempt))
                if response.status ~= 201 then return false, "status " .. response.status end
                return true, "taken", { location = response.url }
            end)
            :on_success(function(this, params, output) log.info("up at attempt " .. this.attempt) end)
            :on_failure(function() log.info("never said") end)
            :build()
        """,
    )
    (row,) = finished.rows
    assert (row.attempts, row.message) == (3, "taken")
    assert [body for _, _, body in project.site.asked] == [b"attempt 1", b"attempt 2", b"attempt 3"]
    assert finished.said == ["up at attempt 3"]
    warned = [line for line in finished.lines if line.startswith("warn ")]
    assert [line.split(" failed: ")[1] for line in warned] == [
        "status 503; the next in 0.004 s", "status 429; the next in 0.008 s",
    ]  # fmt: skip


async def test_a_condition_leaves_out_one_step_and_what_follows_it_runs(project: MonitorProject) -> None:
    source = """
        local migrate = task("migrate")
            :run_if(function() return state.get("schema", 0) < 4 end)
            :command(function() state.set("schema", 4) return true, "to 4", { schema = 4 } end)
            :build()
        local restart = task("restart"):depends_on(migrate):command(function(this, params, input)
            return true, input.migrate and "on a new schema" or "as before"
        end):build()
        workflow.define("update"):tasks({ migrate, restart })
    """
    first = await succeed(project, source)
    assert first.messages() == {"migrate": "to 4", "restart": "on a new schema"}
    second = await succeed(project)
    assert story(second.rows) == ["migrate skipped", "restart success"]
    assert second.messages()["restart"] == "as before"


async def test_a_freeze_aborts_everything_that_has_not_begun(project: MonitorProject) -> None:
    finished = await fail(
        project,
        """
        state.set("freeze", "until Monday")
        workflow.define("deploy")
            :tasks({
                task("notes"):command(function() return true, "written" end):build(),
                task("roll_out"):depends_on("notes"):abort_if(function() return state.exists("freeze") end)
                    :command(function() log.error("rolled out") return true end):build(),
            })
            :on_complete(function(success, results) log.info(tostring(success), results.roll_out.status) end)
        workflow.define("announce", { tasks = { mail = { run = function() log.error("mailed") end } } })
        """,
    )
    assert story(finished.rows) == ["notes success", "roll_out failed", "mail skipped"]
    assert finished.said == ["false\tfailed"]
    assert not {"error rolled out", "error mailed"} & set(finished.lines)
    assert finished.ending.reason == "1 of 3 tasks failed: roll_out"


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


async def test_a_round_of_health_checks_goes_on_after_a_failure(project: MonitorProject) -> None:
    project.site.pages |= {"/web": "ok", "/api": web.Response(status=500), "/mail": "ok"}
    finished = await fail(
        project,
        """
        local checks = {}
        for _, service in ipairs({ "web", "api", "mail" }) do
            table.insert(checks, task("check_" .. service):command(function()
                local response, err = http_get("{site}/" .. service)
                if not response then return false, err.error end
                return response.status == 200, "status " .. response.status
            end):build())
            table.insert(checks, task("note_" .. service):depends_on("check_" .. service):command(function()
                state.increment("healthy")
            end):build())
        end
        workflow.define("health"):tasks(checks):config({ on_failure = "continue" })
            :on_complete(function(success) log.info(state.get("healthy") .. " are well") end)
        """,
        ".sloth",
    )
    assert story(finished.rows) == [
        "check_web success", "note_web success", "check_api failed", "note_api skipped",
        "check_mail success", "note_mail success",
    ]  # fmt: skip
    assert finished.messages()["note_api"] == "check_api failed"
    assert (finished.said, finished.ending.reason) == (["2 are well"], "1 of 6 tasks failed: check_api")


async def test_a_step_that_hangs_is_ended_and_its_lock_is_free(project: MonitorProject) -> None:
    finished = await fail(
        project,
        """
        local stuck = task("reindex")
            :timeout("50ms")
            :command(function()
                state.lock("index", 60)
                while true do pcall(function() while true do end end) end
            end)
            :on_timeout(function(this, params, failed) log.info("gave up: " .. failed.error) end)
            :on_failure(function() log.info("never said") end)
            :build()
        local cleanup = task("is_free"):command(function()
            return true, tostring(state.is_locked("index"))
        end):build()
        workflow.define("search"):tasks({ stuck, cleanup }):config({ on_failure = "continue" })
        """,
    )
    assert story(finished.rows) == ["reindex failed", "is_free success"]
    assert finished.messages() == {"reindex": "over its timeout", "is_free": "false"}
    assert finished.said == ["gave up: over its timeout"]


async def test_a_workflow_that_takes_too_long_ends_with_its_own_limit(project: MonitorProject) -> None:
    finished = await fail(
        project,
        """
        local function wait() sleep(60000) end
        workflow.define("slow", { config = { timeout = "60ms" }, tasks = {
            { name = "quick", run = function() return true end },
            { name = "import", depends_on = "quick", run = wait },
            { name = "index", depends_on = "import", run = wait },
        }, on_complete = function(success, results) log.info(tostring(success), results.index.status) end })
        workflow.define("next", { tasks = { report = { run = function() log.info("reported") end } } })
        """,
    )
    assert story(finished.rows) == ["quick success", "import failed", "index skipped", "report success"]
    assert "timeout" in finished.messages()["import"]
    assert finished.said == ["false\tskipped", "reported"]


async def test_steps_without_dependencies_run_side_by_side(project: MonitorProject) -> None:
    finished = await succeed(
        project,
        """
        local function meet(mine, theirs)
            return function()
                state.set(mine, true)
                for _ = 1, 2000 do
                    if state.exists(theirs) then return true, "met " .. theirs, { met = theirs } end
                    sleep(2)
                end
                return false, theirs .. " never came"
            end
        end
        local plan = task("plan"):command(function() return true end):build()
        local east = task("east"):depends_on(plan):command(meet("e", "w")):build()
        local west = task("west"):depends_on(plan):command(meet("w", "e")):build()
        local join = task("join"):depends_on({ east, west }):command(function(this, params, input)
            return true, input.east.met .. input.west.met
        end):build()
        workflow.define("regions"):tasks({ plan, east, west, join }):config({ max_parallel_tasks = 2 })
        """,
        ".sloth",
    )
    assert story(finished.rows) == ["plan success", "east success", "west success", "join success"]
    assert finished.messages()["join"] == "we"


async def test_a_step_asks_many_hosts_at_once_and_goes_on_with_what_answers(project: MonitorProject) -> None:
    for number in range(1, 13):
        if number != 5:
            project.site.pages[f"/host{number}"] = f'{{"load": {number}}}'
    finished = await succeed(
        project,
        """
        local poll = task("poll"):command(function()
            local hosts = {}
            for i = 1, 12 do hosts[i] = "host" .. i end
            local loads = parallel_map(hosts, function(host)
                local response = http_get("{site}/" .. host)
                return response and response.status == 200 and json_decode(response.body).load or -1
            end, 4)
            return true, "asked " .. #hosts, { loads = loads }
        end):build()
        local busiest = task("busiest"):depends_on(poll):command(function(this, params, input)
            local most, silent = 0, {}
            for i, load in ipairs(input.poll.loads) do
                most = math.max(most, load)
                if load < 0 then table.insert(silent, "host" .. i) end
            end
            return true, "most " .. most .. ", silent " .. table.concat(silent, ", ")
        end):build()
        workflow.define("fleet"):tasks({ poll, busiest })
        """,
    )
    assert finished.messages() == {"poll": "asked 12", "busiest": "most 12, silent host5"}


async def test_a_quota_is_shared_by_the_runs_of_a_job(project: MonitorProject) -> None:
    source = """
        local function allowed(name, most, window)
            return state.with_lock("quota:" .. name, function()
                local used = state.get("used:" .. name, 0)
                if used >= most then return false, "quota of " .. name .. " is used up" end
                if used == 0 then state.set("used:" .. name, 1, window) else state.increment("used:" .. name) end
                return true
            end, 10)
        end
        task({ name = "translate", run = function()
            local ok, why = allowed("words", 2, 3600)
            if not ok then return false, why end
            return true, "call " .. state.get("used:words")
        end })
    """
    assert (await succeed(project, source)).messages() == {"translate": "call 1"}
    assert (await succeed(project)).messages() == {"translate": "call 2"}
    third = await fail(project)
    assert third.messages() == {"translate": "quota of words is used up"}
    assert third.ending.reason == "1 of 1 tasks failed: translate"


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


async def test_a_queue_is_worked_off_over_several_runs(project: MonitorProject) -> None:
    source = """
        local BATCH = 2
        if not state.exists("seeded") then
            for _, name in ipairs({ "a", "b", "bad", "c" }) do state.list_push("queue", { name = name }) end
            state.set("seeded", true)
        end
        local take = task("take"):command(function()
            local taken = {}
            while #taken < BATCH and state.list_length("queue") > 0 do table.insert(taken, state.list_pop("queue")) end
            return true, #taken .. " taken", { items = #taken > 0 and taken or JSON_EMPTY_ARRAY }
        end):build()
        local work = task("work"):depends_on("take"):command(function(this, params, input)
            local done = {}
            for _, item in ipairs(input.take.items) do
                if item.name == "bad" and state.increment("tries") < 2 then state.list_push("queue", item)
                else table.insert(done, item.name) end
            end
            return true, table.concat(done, " ")
        end):build()
        workflow.define("queue"):tasks({ take, work })
    """
    assert (await succeed(project, source)).messages() == {"take": "2 taken", "work": "c"}
    assert (await succeed(project)).messages() == {"take": "2 taken", "work": "bad b"}
    assert (await succeed(project)).messages() == {"take": "1 taken", "work": "a"}
    assert (await succeed(project)).messages() == {"take": "0 taken"}


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


async def test_a_guard_before_each_attempt_can_refuse_it(project: MonitorProject) -> None:
    finished = await fail(
        project,
        """
        local backup = task("backup")
            :retries(2, "fixed"):retry_delay(0)
            :pre_hook(function(this) log.info("space? " .. this.attempt) return this.attempt ~= 1 end)
            :command(function(this)
                local key = env_get("BACKUP_KEY_NOBODY_SET")
                if not key then return false, "no key" end
                return true
            end)
            :post_hook(function(this, params, given) log.info("after " .. this.attempt .. ": " .. given.error) end)
            :build()
        workflow.define("backups"):tasks({ backup })
        """,
        ".sloth",
    )
    assert finished.said == [
        "space? 1", "after 1: pre_hook returned false", "space? 2", "after 2: no key", "space? 3", "after 3: no key",
    ]  # fmt: skip
    (row,) = finished.rows
    assert (row.attempts, row.message) == (3, "no key")


async def test_two_workflows_of_a_file_share_a_step_and_run_in_order(project: MonitorProject) -> None:
    finished = await succeed(
        project,
        """
        local probe = task("probe"):command(function(this)
            return true, this.workflow .. " " .. state.increment("probes")
        end):build()
        local draft = task("draft"):command(function() log.error("never") end):build()
        local switch = task("switch"):depends_on("probe"):command(function() return true end):build()
        workflow.define("before"):tasks({ probe })
        workflow.define("change"):tasks({ switch, probe })
        """,
    )
    assert [f"{row.workflow}: {row.name}" for row in finished.rows] == [
        "before: probe",
        "change: switch",
        "change: probe",
    ]
    assert [row.message for row in finished.rows if row.name == "probe"] == ["before 1", "change 2"]
    assert "warn in no workflow, so not run: draft" in finished.lines


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


async def test_what_one_step_makes_is_kept_and_handed_to_another(project: MonitorProject) -> None:
    finished = await succeed(
        project,
        """
        local build = task("build"):artifacts({ "*.csv" }):command(function()
            fs_overwrite("report.csv", "a,1")
            fs_overwrite("notes.txt", "not kept")
            return true, "made"
        end):build()
        local scrub = task("scrub"):depends_on(build):command(function() fs_overwrite("report.csv", "") end):build()
        local publish = task("publish"):depends_on(scrub):consumes({ "report.csv" }):command(function()
            return true, fs_read("report.csv")
        end):build()
        workflow.define("report"):tasks({ build, scrub, publish })
        """,
    )
    assert finished.messages()["publish"] == "a,1"
    kept = project.root / "data" / "artifacts" / project.name / str(finished.run.id)
    assert [path.name for path in kept.rglob("*") if path.is_file()] == ["report.csv"]


async def test_a_step_for_another_agent_has_that_agents_state(project: MonitorProject) -> None:
    source = """
        local function leader() return true, state.get("leader") or "none" end
        task({ name = "lead", delegate_to = "edge1", run = function() state.set("leader", "edge1") end })
        task({ name = "follow", delegate_to = "edge2", run = leader })
        task({ name = "again", delegate_to = "edge1", run = leader })
        task({ name = "here", delegate_to = "local", run = leader })
    """
    finished = await succeed(project, source)
    assert finished.messages() == {"follow": "none", "again": "edge1", "here": "none"}
    assert len([line for line in finished.said if "is delegated to edge1: it runs here" in line]) == 1


FAULTS = {
    "a circle": (
        'task("a"):depends_on("c"):command(log) task("b"):depends_on("a"):command(log)\n'
        'task("c"):depends_on("b"):command(log)',
        "a -> c -> b -> a",
    ),
    "a dependency that is not there": (
        'task("push"):depends_on("biuld"):command(log)\ntask("build"):command(log)', 'did you mean "build"?',
    ),
    "a method that is not there": ('task("a"):dependson("b")', 'depends_on'),
    "a key that is not there": ('task({ name = "a", comand = log })', "command"),
    "two of one name": ('task("a"):command(log)\ntask("a"):command(log)', "two tasks are named 'a'"),
    "a task without a command": ('task("a"):description("later"):build()', "task 'a' has no command"),
    "a strategy that is not there": ('task("a"):retries(3, "expo")', '"exponential"'),
    "a duration that is none": ('task("a"):timeout("soon")', "'soon'"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "hint"), FAULTS.values(), ids=FAULTS)
async def test_a_pipeline_with_a_fault_runs_nothing_and_says_where(
    project: MonitorProject, source: str, hint: str
) -> None:
    finished = await fail(project, source)
    assert finished.rows == ()
    assert finished.ending.reason.startswith(f"jobs/{project.name}.lua:")
    assert hint in finished.ending.reason
