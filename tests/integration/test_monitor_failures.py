"""Sites that misbehave, and proxies on the way: each costs its own cycle, with an error of the right kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from spyweb.model import Outcome
from tests.fakes.monitor_project import MonitorProject, open_project
from tests.fakes.web_server import WebServer, open_proxy, open_web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[WebServer]:
    async with open_web_server() as server:
        yield server


@pytest.mark.parametrize(
    ("path", "limits", "kind", "message"),
    [
        ("/large?mb=2&chunked=1", "request.max_body_size = 1", "size", "larger than 1 MB"),
        ("/drip", "request.timeout = 0.2", "timeout", "within 0.2 s"),
        ("", 'request.url = "http://nowhere.invalid/"', "dns", "nowhere.invalid"),
        ("", 'request.headers["X"] = "a\\r\\nb"', "http", "control characters"),
        ("", 'request.proxy = "http://127.0.0.1:1"', "proxy", ""),
    ],
)
async def test_it_is_a_transport_failure_of_its_kind(
    project: MonitorProject, server: WebServer, path: str, limits: str, kind: str, message: str
) -> None:
    hooks = f"function before_fetch(request) {limits} return request end"
    hooks += " function after_fetch(result) log(result.error.kind) return result end"
    project.shop(hooks, url=f'"{server.url(path or "/hello")}"')
    ending = await project.run()
    assert (ending.outcome, project.lines) == (Outcome.FAILED, [f"info {kind}"])
    assert message in ending.reason
    assert await project.records() == []


async def test_proxies_take_turns_and_a_request_may_do_without(project: MonitorProject) -> None:
    hooks = """
    function before_fetch(request)
      turn = (turn or 0) + 1
      if turn == 3 then request.proxy = "" end
      return request
    end
    function after_fetch(result) log(tostring(result.response.proxy)) return result end"""
    async with open_proxy() as first, open_proxy() as second:
        urls = [each.url("", scheme="http") for each in (first, second)]
        project.shop(hooks, f'[proxy]\nenabled = true\nrotate = "RoundRobin"\nurls = ["{urls[0]}", "{urls[1]}"]\n')
        told = []
        for _ in range(4):
            assert (await project.run()).outcome is Outcome.SUCCESS
            told += project.lines
        assert told == [f"info {urls[0]}", f"info {urls[1]}", "info nil", f"info {urls[0]}"]
        assert first.story
        assert second.story
        assert project.site.story == ["GET /"] * 4


async def test_a_selector_that_is_none_fails_its_cycle(project: MonitorProject) -> None:
    project.shop(selector='"..item"')
    ending = await project.run()
    assert ending.outcome is Outcome.FAILED
    assert "..item" in ending.reason


async def test_a_body_that_the_vm_could_not_hold_is_too_large(project: MonitorProject, server: WebServer) -> None:
    hooks = "function after_fetch(result) log(result.error.kind) return result end"
    project.shop(hooks, url=f'"{server.url("/large?mb=9")}"', memory_limit='"8MB"')
    assert (await project.run()).outcome is Outcome.FAILED
    assert project.lines == ["info size"]


@pytest.mark.parametrize("hooks", ["", "function on_error(err) log('error') end function on_finally() log('end') end"])
async def test_a_planned_stop_ends_what_is_under_way_at_once(tmp_path: Path, server: WebServer, hooks: str) -> None:
    async with open_project(tmp_path) as project:
        server.asked.clear()
        project.shop(hooks, url=f'"{server.url("/silence")}"')
        observer = await project.start()
        await server.asked.wait()
        await project.runtime.runner.drain(0)
        ending = await observer.over
    assert ending.outcome is Outcome.STOPPED
    assert project.lines == (["info error", "info end"] if hooks else [])
