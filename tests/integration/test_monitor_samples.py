"""What SpyWeb's own pages show its users, in our words: each of these must work as they learnt it."""

from __future__ import annotations

import json

import pytest

from spyweb.model import Outcome
from tests.fakes.monitor_project import MonitorProject
from tests.fakes.web_server import open_proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO = '["title:h2", "price:.price"]'
WEBHOOK = '[webhook]\nenabled = true\nurl = "http://127.0.0.1:1/hook"\n'


async def test_a_fetch_is_tried_again_through_one_proxy_after_the_other(project: MonitorProject) -> None:
    async with open_proxy() as good:
        hooks = f"""
        local proxies = {{ "http://127.0.0.1:1", "{good.url("")}" }}
        function override_fetch(request, ctx)
          for attempt = 1, 2 do
            for number, proxy in ipairs(proxies) do
              local res, err = http_request {{
                url = request.url, method = request.method, headers = request.headers,
                proxy = proxy, timeout = 5, max_body_size = 5,
              }}
              if res then
                log(string.format("proxy %d: %d bytes in %dms", number, res.size, res.time_ms):match("^proxy %d: %d+"))
                return res
              end
              log(string.format("attempt %d, proxy %d: %s", attempt, number, err.kind))
            end
            sleep(10 + math.random(-5, 5))
          end
          return {{ error = "no proxy worked" }}
        end"""
        project.shop(hooks, fields=TWO)
        assert (await project.run()).outcome is Outcome.SUCCESS
    size = len(str(project.site.pages["/"]))
    assert project.lines == ["info attempt 1, proxy 1: proxy", f"info proxy 2: {size}"]
    assert len(await project.records()) == 2


async def test_workers_claim_their_addresses_from_a_table(project: MonitorProject) -> None:
    hooks = """
    db_exec("CREATE TABLE IF NOT EXISTS target (id TEXT PRIMARY KEY, url TEXT NOT NULL, state TEXT DEFAULT 'waiting')")
    for n = 1, 3 do db_exec("INSERT OR IGNORE INTO target (id, url) VALUES (?, ?)", { "t" .. n, "{site}/" .. n }) end
    function before_fetch(request, ctx)
      local rows = db_query([[
        UPDATE target SET state = 'claimed'
        WHERE id = (SELECT id FROM target WHERE state = 'waiting' ORDER BY id LIMIT 1) RETURNING id, url]])
      if #rows == 0 then return nil end
      ctx.shared.id, request.url = rows[1].id, rows[1].url
      return request
    end"""
    defer = """
    function on_finally(ctx)
      if not ctx.shared.id then return end
      local state = ctx.telemetry.map.fetch.status == "success" and "done" or "failed"
      db_exec("UPDATE target SET state = ? WHERE id = ?", { state, ctx.shared.id })
    end
    function on_finished()
      for _, row in ipairs(db_query("SELECT id, state FROM target ORDER BY id")) do log(row.id .. " " .. row.state) end
    end"""
    project.site.pages["/1"] = project.site.pages["/3"] = project.site.pages["/"]
    project.shop(hooks, defer=defer, workers="4")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert sorted(project.site.story) == ["GET /1", "GET /2", "GET /3"]
    assert project.lines == ["info t1 done", "info t2 failed", "info t3 done"]


async def test_a_webhook_is_shaped_into_blocks(project: MonitorProject) -> None:
    hooks = """
    function before_webhook(payload, ctx)
      local blocks = { { type = "section", text = { type = "mrkdwn", text = payload.item_count .. " items" } } }
      for _, item in ipairs(payload.items) do
        table.insert(blocks, { type = "divider" })
        local text = "<" .. (item.fields.link or "#") .. "|" .. (item.fields.title or "Item") .. ">"
        table.insert(blocks, { type = "section", text = { type = "mrkdwn", text = text } })
      end
      return { blocks = blocks }
    end"""
    project.shop(hooks, WEBHOOK, keywords='["lamp"]')
    await project.run()
    (message,) = await project.messages()
    assert [block.get("text", {}).get("text") for block in json.loads(message.payload)["blocks"]] == [
        "1 items",
        None,
        f"<{project.site.url}/lamp|Lamp>",
    ]


async def test_doubles_are_dropped_before_the_filter(project: MonitorProject) -> None:
    project.site.pages["/"] = str(project.site.pages["/"]) * 2
    hooks = """
    function after_extract(items, ctx)
      local seen, unique = {}, {}
      for _, item in ipairs(items) do
        local title = item.fields.title or ""
        if not seen[title] and title ~= "" then
          seen[title] = true
          table.insert(unique, item)
        end
      end
      print(#unique .. " of " .. ctx.selector_matches)
      return unique
    end"""
    project.shop(hooks, fields=TWO)
    await project.run()
    assert project.lines == ["print 2 of 4"]
    assert len(await project.records()) == 2


async def test_a_site_that_fails_is_left_alone_for_a_while(project: MonitorProject) -> None:
    hooks = """
    function before_fetch(request, ctx)
      if (tonumber(store_get("failures")) or 0) >= 2 then log("resting") return nil end
      return request
    end"""
    defer = """
    function on_error(err, ctx) store_set("failures", (tonumber(store_get("failures")) or 0) + 1) end
    function on_success(ctx) if ctx.last_fetch then store_delete("failures") end end"""
    project.shop(hooks, defer=defer, url='"http://127.0.0.1:1/"')
    outcomes, lines = [], []
    for _ in range(3):
        outcomes.append((await project.run()).outcome)
        lines += project.lines
    assert outcomes == [Outcome.FAILED, Outcome.FAILED, Outcome.SUCCESS]
    assert lines == ["info resting"]


async def test_what_a_cycle_counted_is_pushed_when_it_has_ended(project: MonitorProject) -> None:
    project.site.pages["/push"] = "ok"
    hooks = "function after_extract(items, ctx) ctx.shared.item_count = #items return items end"
    defer = """
    function on_finally(ctx)
      local payload = json_encode({ items = ctx.shared.item_count or 0 })
      http_post("{site}/push", payload, { ["Content-Type"] = "application/json" })
    end"""
    project.shop(hooks, defer=defer)
    await project.run()
    assert project.site.asked[-1][2] == b'{"items":2}'
