"""Monitor jobs as a user writes them: Lua in a real VM, pages from a real server, records in a real database."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from spyweb.model import Failure, JobId, Outcome, Run, Trigger
from spyweb.runs.runner import RunRequest
from tests.fakes.monitor_project import MonitorProject

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one project for all of them

LAMP, DESK = {"title": "Lamp", "price": "5"}, {"title": "Desk", "price": "90"}
TWO = '["title:h2", "price:.price"]'


async def test_a_job_without_lua_stores_what_is_new_and_uses_no_vm(project: MonitorProject) -> None:
    before = project.runtime.pool.stats().loads
    project.shop()
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert await project.records() == [
        {"title": "Lamp", "link": f"{project.site.url}/lamp", "price": "5"},
        {"title": "Desk", "link": f"{project.site.url}/desk", "price": "90"},
    ]
    assert project.runtime.pool.stats().loads == before


TELL_ALL = """
function note(name, ctx) ctx.shared.told = (ctx.shared.told or "") .. name .. " " end
function before_fetch(r, ctx) note("before_fetch", ctx) return r end
function after_fetch(f, ctx) note("after_fetch", ctx) return f end
function after_extract(items, ctx) note("after_extract", ctx) return items end
function filter_item(item, ctx) note("filter_item", ctx) return item end
function before_store(items, ctx) note("before_store", ctx) return items end
function before_notify(items, ctx) note("before_notify", ctx) return items end
function before_webhook(payload, ctx) note("before_webhook", ctx) return payload end
"""
TELL_END = """
function on_success(ctx) note("on_success", ctx) end
function on_finally(ctx) note("on_finally", ctx) log(ctx.shared.told) end
function on_finished(...) log("finished " .. select("#", ...)) end
"""


async def test_every_hook_is_called_in_its_order_and_shares_a_table(project: MonitorProject) -> None:
    project.shop(TELL_ALL, defer=TELL_END)
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert project.lines == [
        "info before_fetch after_fetch after_extract filter_item filter_item before_store before_notify before_webhook"
        " on_success on_finally ",
        "info finished 0",
    ]


async def test_the_request_goes_out_as_before_fetch_left_it(project: MonitorProject) -> None:
    project.site.pages["/search"] = project.site.pages["/"]
    hooks = """
    function before_fetch(request, ctx)
      assert(request.headers.Accept == "text/html" and request.method == "GET" and request.timeout == nil)
      request.url, request.method, request.body = request.url .. "search?page=" .. ctx.worker_id, "POST", "q=1"
      request.headers["X-Token"] = "secret"
      return request
    end"""
    project.shop(hooks, headers='{ Accept = "text/html" }')
    assert (await project.run()).outcome is Outcome.SUCCESS
    what, headers, body = project.site.asked[0]
    assert (what, body, headers["Accept"], headers["X-Token"]) == (
        "POST /search?page=1",
        b"q=1",
        "text/html",
        "secret",
    )


async def test_a_fetch_that_fails_is_told_with_its_kind_and_may_be_made_good(project: MonitorProject) -> None:
    hooks = """
    function after_fetch(result, ctx)
      log(tostring(result.ok) .. " " .. result.error.kind .. " " .. tostring(result.response))
      return { response = { status = 200, body = "<div class=item><h2>cached</h2></div>" } }
    end"""
    project.shop(hooks, url='"http://127.0.0.1:1/"', fields='["title:h2"]')
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert project.lines == ["info false connect nil"]
    assert await project.records() == [{"title": "cached"}]


async def test_an_error_page_is_told_and_goes_on_to_extraction(project: MonitorProject) -> None:
    project.site.pages["/"] = web.Response(status=403, text='<div class="item"><h2>Forbidden</h2></div>')
    hooks = """
    function after_fetch(result, ctx)
      log(result.response.status .. " " .. result.error.message .. " " .. result.response.headers["CONTENT-TYPE"])
      return result
    end"""
    end = 'function on_finally(ctx) log(ctx.telemetry.map.fetch.status .. " " .. tostring(ctx.last_fetch.ok)) end'
    project.shop(hooks, defer=end, fields='["title:h2"]')
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert project.lines == ["info 403 http status: 403 text/plain; charset=utf-8", "info error false"]
    assert await project.records() == [{"title": "Forbidden"}]


async def test_the_body_may_be_cleaned_before_extraction(project: MonitorProject) -> None:
    hooks = """
    function after_fetch(result, ctx)
      result.response.body = result.response.body:gsub("Lamp", "Light")
      return result
    end
    function after_extract(items, ctx)
      for _, item in ipairs(items) do
        item.fields.price = item.fields.price:match("%d")
        item.fields.seen = tostring(ctx.last_fetch.response.body:find("Light") ~= nil)
      end
      log(#items .. " of " .. ctx.selector_matches)
      return items
    end"""
    project.shop(hooks, fields=TWO)
    await project.run()
    assert await project.records() == [
        {"title": "Light", "price": "5", "seen": "true"},
        {"title": "Desk", "price": "9", "seen": "true"},
    ]
    assert project.lines == ["info 2 of 2"]


async def test_json_is_extracted_by_override_extract_and_searched_for_keywords(project: MonitorProject) -> None:
    project.site.pages["/"] = web.Response(
        text='{"posts": [{"by": "Ann", "n": 3.0}, {"by": "Bob"}]}', content_type="application/json"
    )
    hooks = """
    function override_extract(response, ctx)
      local items = {}
      for _, post in ipairs(json_decode(response.body).posts) do
        table.insert(items, { fields = { title = post.by, price = post.n }, matches = { "made up" } })
      end
      return items
    end
    function before_store(items, ctx)
      for _, item in ipairs(items) do log(item.fields.title .. ": " .. table.concat(item.matches, ",")) end
      return items
    end"""
    project.shop(hooks, fields=TWO, keywords='["ANN"]')
    await project.run()
    assert await project.records() == [{"title": "Ann", "price": "3"}]
    assert project.lines == ["info Ann: ANN"]


async def test_filter_item_takes_the_place_of_the_keywords(project: MonitorProject) -> None:
    hooks = """
    blocked = { lamp = true }
    function filter_item(item)
      if blocked[item.fields.title:lower()] then return nil end
      item.fields.price = "$" .. item.fields.price
      return item
    end"""
    project.shop(hooks, fields=TWO, keywords='["lamp"]')
    await project.run()
    assert await project.records() == [{"title": "Desk", "price": "$90"}]


async def test_what_is_not_stored_can_go_elsewhere_when_the_cycle_has_ended(project: MonitorProject) -> None:
    project.site.pages["/ingest"] = "ok"
    hooks = "function before_store(items, ctx) ctx.shared.external = items return nil end"
    end = """
    function on_success(ctx)
      local payload = json_encode({ items = ctx.shared.external })
      local res, err = http_post("{site}/ingest", payload, { ["Content-Type"] = "application/json" })
      log(res and res.status or err.error)
    end"""
    project.shop(hooks, defer=end, fields=TWO)
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert (await project.records(), project.lines) == ([], ["info 200"])
    sent = json.loads(project.site.asked[-1][2])
    assert [item["fields"]["title"] for item in sent["items"]] == ["Lamp", "Desk"]


async def test_a_notification_shows_what_before_notify_left(project: MonitorProject) -> None:
    note = (
        '{ enabled = true, timeout = 5000, title = "{item_count} at {job_name}", body = "{title}: {price} {nothing}" }'
    )
    project.shop("function before_notify(items) return { items[2] } end", fields=TWO, notification=note)
    await project.run()
    (message,) = await project.messages()
    assert json.loads(message.payload) == {
        "title": f"1 at {project.name}",
        "body": "Desk: 90 {nothing}",
        "timeout_ms": 5000,
    }


async def test_a_hook_error_is_logged_with_its_line_and_the_cycle_goes_on(project: MonitorProject) -> None:
    project.shop("\nfunction after_extract(items, ctx)\n  return items.nothing.at.all\nend", fields=TWO)
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert project.lines[0].startswith(f"error after_extract: jobs/{project.name}/hooks.lua:3: attempt to index a nil")
    assert await project.records() == [LAMP, DESK]


async def test_the_end_of_a_failed_cycle_is_told_and_a_batch_is_counted(project: MonitorProject) -> None:
    end = """
    function on_error(err, ctx) log("error " .. err) end
    function on_finally(ctx)
      batch = batch or { success = 0, error = 0, inactive = 0 }
      local status = ctx.telemetry.map.fetch.status
      batch[status] = batch[status] + 1
      for _, stage in ipairs(ctx.telemetry.stages) do assert(stage.duration_ms and stage.lua_mem_bytes) end
      assert(math.type(ctx.telemetry.start_time) == "integer" and ctx.telemetry.total_duration_ms > 0)
    end
    function on_finished() log(batch.success .. " " .. batch.error) batch = nil end"""
    project.shop(defer=end, url="", urls='["{site}/", "http://127.0.0.1:1/"]')
    ending = await project.run()
    assert ending.outcome is Outcome.FAILED
    assert ending.reason.startswith("http://127.0.0.1:1/: could not connect to 127.0.0.1:1")
    assert project.lines[0].startswith("info error could not connect to 127.0.0.1:1")
    assert project.lines[-1] == "info 1 1"


async def test_workers_have_their_numbers_and_hooks_take_turns_across_what_they_wait_for(
    project: MonitorProject,
) -> None:
    hooks = """
    function before_fetch(request, ctx)
      assert(busy ~= true)
      busy = true
      sleep(30)
      busy = false
      assert(not pcall(function() ctx.worker_id = 9 end))
      request.url = request.url .. "?worker=" .. ctx.worker_id
      return request
    end
    function after_extract(items) assert(busy ~= true) busy = true sleep(20) busy = false return items end"""
    project.shop(hooks, workers="3")
    ending = await project.run()
    assert (ending.outcome, project.lines) == (Outcome.SUCCESS, [])
    assert sorted(project.site.story) == ["GET /?worker=1", "GET /?worker=2", "GET /?worker=3"]


async def test_a_hook_that_waits_too_long_ends_with_the_run_and_the_end_hooks_are_told(
    project: MonitorProject,
) -> None:
    end = """
    function on_error(err, ctx) log("error " .. tostring(ctx.worker_id)) end
    function on_finally() log("finally") end
    function on_finished() log("finished") end"""
    project.shop("function before_fetch() sleep(60000) end", defer=end, timeout='"300ms"')
    ending = await project.run()
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.TIMEOUT)
    assert project.lines == ["info error 1", "info finally", "info finished"]


async def test_a_hook_that_never_ends_costs_its_cycle_and_the_next_run_executes_the_files_anew(
    project: MonitorProject,
) -> None:
    hooks = """
    log("loaded")
    function after_extract(items)
      if not store_get("spun") then store_set("spun", 1) while true do end end
      return items
    end"""
    project.shop(hooks, fields=TWO, cpu_limit='"100ms"')
    ending = await project.run()
    assert (ending.failure, await project.records()) == (Failure.CPU, [])
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert await project.records() == [LAMP, DESK]


async def test_each_cycle_leaves_the_page_and_the_fields_where_the_settings_ask_for_them(
    project: MonitorProject,
) -> None:
    project.shop(fields=TWO, debug="true")
    await project.run()
    folder = project.root / "jobs" / project.name
    assert (folder / f"{project.name}-response.html").read_text() == project.site.pages["/"]
    assert json.loads((folder / f"{project.name}-fields.json").read_text()) == [LAMP, DESK]


async def tell(project: MonitorProject, hook: str = "on_down") -> Run:
    """Tell the files of the monitor of an incident, as the planner does; return the run."""
    job = project.runtime.live.find(JobId(project.name)) or project.load()
    trigger = Trigger(type="alert", hook=hook, incident={"id": 7, "text": "no page"})
    (run_id,) = await project.runtime.runner.start(job, [RunRequest(trigger=trigger)])
    while True:
        (run,) = await project.runtime.store.runs.list(JobId(project.name), limit=1)
        if run.outcome is not None:
            assert run.id == run_id
            return run
        await asyncio.sleep(0.01)


async def test_a_monitor_is_told_of_an_incident_and_fetches_nothing(project: MonitorProject) -> None:
    project.shop(
        "function on_down(incident, ctx) store_set('told', incident.text .. ' ' .. ctx.trigger.hook .. ctx.job) end"
    )
    told = await tell(project)
    assert (told.outcome, told.items_found) == (Outcome.SUCCESS, None)
    assert project.site.asked == []
    found = await project.runtime.store.values.get(f"job:{project.name}", b"told")
    assert found == b"no page on_down" + project.name.encode()


@pytest.mark.parametrize(
    ("hooks", "outcome", "reason"),
    [
        ("function on_up() end", Outcome.SKIPPED, "there is no function on_down"),
        ("", Outcome.SKIPPED, "there is no function on_down"),
        ("function on_down() error('no') end", Outcome.FAILED, "jobs/NAME/hooks.lua:1: no"),
        ("function on_down() while true do end end", Outcome.FAILED, "jobs/NAME/hooks.lua:1: cpu limit exceeded"),
    ],
)
async def test_what_goes_wrong_as_a_monitor_is_told_is_the_end_of_that_run(
    project: MonitorProject, hooks: str, outcome: Outcome, reason: str
) -> None:
    project.shop(hooks, cpu_limit='"100ms"')
    told = await tell(project)
    assert (told.outcome, told.reason.startswith(reason.replace("NAME", project.name))) == (outcome, True), told.reason
