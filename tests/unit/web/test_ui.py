"""The project's own pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.web.app import Site
from spyweb.web.ui import find_file, type_of
from tests.fakes.client import client_of, content_of
from tests.fakes.daemon_service import FakeDaemonService


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


@pytest.mark.parametrize(("path", "status"), [("/api/nothing", 401), ("/missing.js", 404)])
async def test_what_is_not_there_is_told_as_everywhere(ui: Path, path: str, status: int) -> None:
    async with (
        client_of(content_of(FakeDaemonService(api_key="key"), Site(ui=ui))) as client,
        client.get(path) as answer,
    ):
        assert answer.status == status


async def test_pages_come_and_go_with_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "ui"
    async with client_of(content_of(FakeDaemonService(), Site(ui=folder))) as client:
        assert (await client.get("/index.html")).status == 404
        folder.mkdir()
        (folder / "index.html").write_text("now")
        assert await (await client.get("/")).text() == "now"
        assert (await client.get("/api/nothing")).status == 404
        assert (await client.post("/")).status == 405
