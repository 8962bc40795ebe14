"""The addresses that each app serves, errors as HTTP answers, and the project's own pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp import web

from spyweb.daemon.subjects import ROUTES
from spyweb.errors import ConfigError, NoAccess, PoolError, Problem, ScriptError, StoreClosed
from spyweb.store.model.access import Scope
from spyweb.subjects.incidents.pages import ack_routes
from spyweb.web.app import Site, project_app, socket_app, tcp_app
from spyweb.web.endpoints import find_file, type_of
from spyweb.web.pages.page import ACTIONS, PAGES
from spyweb.web.pages.site import page_routes
from tests.fakes.client import DASHBOARD_PORT, client_of, content_of, failure, get_json
from tests.fakes.daemon_service import FakeDaemonService, refused
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


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConfigError([Problem("config.toml", 3, "port", "expected a whole number")]), 422, "config"),
        (ScriptError("jobs/x.lua", 1, "unexpected symbol"), 422, "script"),
        (StoreClosed(), 503, "store"),
        (NoAccess("data belongs to root"), 403, "no_access"),
        (refused(), 409, "refused"),
    ],
)
async def test_spywebs_errors_have_a_status_and_a_code(error: Exception, status: int, code: str) -> None:
    async with client_of(socket_app(FakeDaemonService(trouble=error))) as client:
        assert await get_json(client, "/api/jobs") == (status, failure(str(error), code))


@pytest.mark.parametrize("trouble", [PoolError("no room"), None])
async def test_who_finds_no_room_gives_the_connection_back(trouble: Exception | None) -> None:
    async with client_of(socket_app(FakeDaemonService(trouble=trouble))) as client, client.get("/api/jobs") as answer:
        is_closed = answer.headers.get("Connection") == "close"
        assert (answer.status, is_closed) == ((503, True) if trouble else (200, False))


async def test_a_bug_is_told_to_nobody_but_the_log() -> None:
    async with client_of(socket_app(FakeDaemonService(trouble=KeyError("the secret")))) as client:
        assert await get_json(client, "/api/jobs") == (500, failure("Internal Server Error", "internal"))


async def test_a_browser_gets_a_page_on_which_text_is_text() -> None:
    trouble = refused("<script>alert(1)</script>")
    async with (
        client_of(socket_app(FakeDaemonService(trouble=trouble))) as client,
        client.get("/api/jobs", headers={"Accept": "text/html,*/*;q=0.8"}) as answer,
    ):
        assert (answer.status, answer.content_type) == (409, "text/html")
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in await answer.text()


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    for name, text in {
        "secret.txt": "secret", "ui/index.html": "<h1>", "ui/app.js": "1", "ui/docs/index.html": "docs",
        "ui/.env": "KEY", "ui/a b.txt": "spaced",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "ui/out.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "ui/loop").symlink_to("loop")
    (tmp_path / "ui/same.js").symlink_to("app.js")
    (tmp_path / "ui/away").symlink_to(tmp_path)
    return tmp_path / "ui"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/", "index.html"), ("/app.js", "app.js"), ("/same.js", "app.js"), ("/a%20b.txt", "a b.txt"),
        ("//app.js", "app.js"), ("/docs", "docs/index.html"), ("/docs/", "docs/index.html"),
        ("/jobs/7", "index.html"), ("/v1.2/jobs", "index.html"),
    ],
)  # fmt: skip
def test_an_address_means_a_file_and_one_without_extension_the_index(ui: Path, address: str, name: str) -> None:
    assert find_file(ui, address) == ui.resolve() / name


@pytest.mark.parametrize(
    "address",
    [
        "/missing.js", "/../secret.txt", "/%2e%2e/secret.txt", "/%2E%2E%2Fsecret.txt", "/..%5csecret.txt", "/docs/..",
        "/out.txt", "/away/secret.txt", "/.env", "/%2eenv", "/app.js%00", "/%00.js", "/app.js/x.js",
        f"/{'x' * 300}.js", "/%FF.js",
    ],
)  # fmt: skip
def test_nothing_outside_and_nothing_hidden_is_found(ui: Path, address: str) -> None:
    assert find_file(ui, address) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.html", "text/html; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.wasm", "application/wasm"),
        ("a.JSON", "application/json; charset=utf-8"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a", "application/octet-stream"),
    ],
)
def test_the_type_follows_from_the_name(name: str, kind: str) -> None:
    assert type_of(Path(name)) == kind


async def test_a_page_is_served_without_a_key_and_revalidated(ui: Path) -> None:
    async with client_of(content_of(FakeDaemonService(api_key="key"), Site(ui=ui))) as client:
        async with client.get("/") as answer:
            assert (answer.status, await answer.text()) == (200, "<h1>")
            etag = answer.headers["ETag"]
        async with client.get("/", headers={"If-None-Match": etag}) as answer:
            assert answer.status == 304
        async with client.head("/app.js") as answer:
            assert (answer.status, answer.headers["Content-Length"], await answer.read()) == (200, "1", b"")
        async with client.get("/", headers={"Range": "bytes=1-2"}) as answer:
            assert (answer.status, await answer.text()) == (206, "h1")


async def test_pages_come_and_go_with_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "ui"
    async with client_of(content_of(FakeDaemonService(), Site(ui=folder))) as client:
        assert (await client.get("/index.html")).status == 404
        folder.mkdir()
        (folder / "index.html").write_text("now")
        assert await (await client.get("/")).text() == "now"
        assert (await client.get("/api/nothing")).status == 404
        assert (await client.post("/")).status == 405
