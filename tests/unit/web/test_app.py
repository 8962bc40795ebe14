"""The addresses that each app serves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp import web

from spyweb.daemon.subjects import ROUTES
from spyweb.store.model.access import Scope
from spyweb.subjects.incidents.ack import ack_routes
from spyweb.web.app import Site, project_app, socket_app, tcp_app
from spyweb.web.pages.page import ACTIONS, PAGES
from spyweb.web.pages.site import page_routes
from tests.fakes.client import DASHBOARD_PORT, client_of, content_of, failure, get_json
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.endpoints import serve


def served(app: web.Application) -> set[tuple[str, str]]:
    return {(each.method, each.resource.canonical) for each in app.router.routes() if each.resource}


def test_tcp_and_the_socket_serve_the_same_table_and_tcp_the_dashboard_as_well() -> None:
    table = {(each.method, each.path) for each in ROUTES}
    pages = {(each.method, each.path) for each in page_routes(PAGES, ACTIONS)}
    links = {(each.method, re.sub(":[^}]*}+", "}", each.path)) for each in ack_routes()}
    on_socket, on_tcp = (
        {each for each in served(app) if each[0] != "HEAD"}
        for app in (socket_app(FakeDaemonService()), tcp_app(FakeDaemonService()))
    )
    assert on_socket == table
    assert on_tcp == table | pages | links
    assert not table & pages


async def test_a_wrong_method_says_which_are_right() -> None:
    async with client_of(tcp_app(FakeDaemonService())) as client, client.post("/api/jobs") as answer:
        assert answer.status == 405
        assert await answer.json() == failure("Method Not Allowed", "method_not_allowed")
        assert answer.headers["Allow"] == "GET,HEAD"


async def test_the_server_under_test_serves_jobs_and_records_alone() -> None:
    async with client_of(project_app(FakeDaemonService(), Site())) as client:
        assert (await get_json(client, "/api/jobs"))[0] == 200
        assert (await get_json(client, "/api/records"))[0] == 200
        assert (await get_json(client, "/api/runs"))[0] == 404


THEIRS = ["/api/v/x", "/api/public/x", "/api/jobs", "/api/records", "/healthz", "/", "/index.html"]
NOT_THEIRS = ["/api/overview", "/api/keys", "/api/state/entry?key=x", "/api/jobs/prices", "/metrics", "/api/events"]


@pytest.mark.parametrize("path", [*THEIRS, *NOT_THEIRS])
async def test_on_this_machine_content_reaches_what_its_pages_call_and_nothing_else(path: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("theirs")
    async with (
        serve() as served,
        client_of(content_of(FakeDaemonService(), Site(endpoints=served.endpoints, ui=tmp_path))) as client,
    ):
        assert (await client.get(path)).status == (200 if path in THEIRS else 403)
        for change in ("/api/jobs/prices/trigger", "/api/keys", "/api/jobs/prices/pause"):
            async with client.post(change, json={}) as answer:
                assert (answer.status, str(DASHBOARD_PORT) in await answer.text()) == (403, True)


async def test_where_there_are_keys_content_is_answered_by_key_and_knows_no_session(tmp_path: Path) -> None:
    service = FakeDaemonService()
    token = (await service.access.add("anna", [Scope.ADMIN])).token
    given = service.access.admit_key(token)
    assert given
    session = {"Cookie": f"spyweb_0={service.access.sign_in(given)}"}
    async with serve() as served:
        site = Site(endpoints=served.endpoints, ui=tmp_path)
        async with client_of(content_of(service, site)) as client, client_of(tcp_app(service, site)) as dashboard:
            for path in (*NOT_THEIRS[:3], "/api/v/x", "/api/jobs"):
                assert (await client.get(path, headers=session)).status == 401
            assert (await client.get("/api/keys", headers={"X-SpyWeb-Key": token})).status == 200
            assert (await dashboard.get("/api/keys", headers=session)).status == 200
            for path in ("/api/v/x", "/api/public/x"):
                assert (await dashboard.get(path, headers={"X-SpyWeb-Key": token})).status == 404
