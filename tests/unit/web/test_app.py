"""The addresses that each app serves."""

from __future__ import annotations

import re

from aiohttp import web

from spyweb.web.api.routes import ROUTES
from spyweb.web.app import Site, project_app, socket_app, tcp_app
from spyweb.web.pages.ack import ack_routes
from spyweb.web.pages.pages import ACTIONS, PAGES
from spyweb.web.pages.site import page_routes
from tests.fakes.client import client_of, failure, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService


def tcp(service: FakeDaemonService) -> web.Application:
    return tcp_app(service)


def served(app: web.Application) -> set[tuple[str, str]]:
    return {(each.method, each.resource.canonical) for each in app.router.routes() if each.resource}


def test_tcp_and_the_socket_serve_the_same_table_and_tcp_the_dashboard_as_well() -> None:
    table = {(each.method, each.path) for each in ROUTES}
    pages = {(each.method, each.path) for each in page_routes("/", None, PAGES, ACTIONS)}
    links = {(each.method, re.sub(":[^}]*}+", "}", each.path)) for each in ack_routes("/")}
    on_socket, on_tcp = (
        {each for each in served(app) if each[0] != "HEAD"}
        for app in (socket_app(FakeDaemonService()), tcp(FakeDaemonService()))
    )
    assert on_socket == table
    assert on_tcp == table | pages | links
    assert not table & pages


async def test_tcp_serves_commands_too() -> None:
    service = FakeDaemonService()
    async with client_of(tcp(service)) as client:
        assert (await get_json(client, "/healthz"))[0] == 200
        assert await post_json(client, "/api/jobs/prices/trigger") == (200, {"run": 9})
        async with client.get("/api/state/entries") as answer:
            assert await answer.json(content_type=None) == {"end": 0}
        assert await get_json(client, "/api/nothing") == (404, failure("Not Found", "not_found"))


async def test_a_wrong_method_says_which_are_right() -> None:
    async with client_of(tcp(FakeDaemonService())) as client, client.post("/api/jobs") as answer:
        assert answer.status == 405
        assert await answer.json() == failure("Method Not Allowed", "method_not_allowed")
        assert answer.headers["Allow"] == "GET,HEAD"


async def test_the_server_under_test_serves_jobs_and_records_alone() -> None:
    async with client_of(project_app(FakeDaemonService(), Site())) as client:
        assert (await get_json(client, "/api/jobs"))[0] == 200
        assert (await get_json(client, "/api/records"))[0] == 200
        assert (await get_json(client, "/api/runs"))[0] == 404
