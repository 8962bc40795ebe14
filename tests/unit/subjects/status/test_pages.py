"""The status page is served before anybody is recognised, from bytes, on the content's origin alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spyweb.store.model.access import Scope
from spyweb.subjects.status.service import HTML
from spyweb.web.app import Site, tcp_app
from tests.fakes.client import Client, client_of, content_of
from tests.fakes.daemon_service import FakeDaemonService, with_key
from tests.fakes.status import CONFIG, MARK, make_status

PRIVATE = CONFIG.replace("public = true", "public = false")
KEY = "a key of at least 20 characters"


@asynccontextmanager
async def content(
    root: Path, config: str = CONFIG, key: str | None = None
) -> AsyncIterator[tuple[Client, FakeDaemonService]]:
    service, status = await make_status(root, config)
    if key:
        with_key(service, key)
    async with client_of(content_of(service, Site(ui=root / "ui", answer_first=[status.answer_first]))) as client:
        yield client, service


@pytest.mark.parametrize("key", [None, KEY])
async def test_anybody_sees_a_public_page_also_through_a_proxy_and_under_any_name(
    tmp_path: Path, key: str | None
) -> None:
    async with content(tmp_path, key=key) as (client, _):
        headers = {"Host": "status.example.org", "X-Forwarded-For": "192.0.2.1", "X-SpyWeb-Key": "wrong"}
        for name in ("", HTML, "status.json", "feed.xml", "shop.svg", "page.style.css"):
            async with client.get(f"/status/{name}", headers=headers) as answer:
                body, sent = await answer.read(), str(answer.headers)
                assert (answer.status, MARK in sent, MARK.encode() in body) == (200, False, False), name
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self';")
                assert "script" not in answer.headers["Content-Security-Policy"]
                assert "Set-Cookie" not in answer.headers
        assert (await client.get("/api/jobs", headers=headers)).status in (401, 403)


async def test_a_page_that_is_known_is_not_sent_again(tmp_path: Path) -> None:
    async with content(tmp_path) as (client, _):
        async with client.get("/status/", headers={"Accept-Encoding": "gzip"}) as answer:
            tag = answer.headers["ETag"]
            assert answer.headers["Content-Encoding"] == "gzip"
            assert (await answer.text()).startswith("<!doctype html>")
        for known in (tag, f'W/"other", {tag}'):
            async with client.get("/status/", headers={"If-None-Match": known}) as answer:
                assert (answer.status, await answer.read(), answer.headers["ETag"]) == (304, b"", tag)
        async with client.head("/status/") as answer:
            assert (answer.status, answer.headers["ETag"]) == (200, tag)


async def test_its_address_has_a_slash_at_the_end_so_that_links_are_as_in_an_export(tmp_path: Path) -> None:
    async with content(tmp_path) as (client, _):
        async with client.get("/status", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (308, "status/")
        for path in ("/status/x", f"/status/{MARK}", "/status/../config.toml", "/statusx", "/status/shop.svg/"):
            assert (await client.get(path)).status == 404, path
        assert (await client.post("/status/")).status in (404, 405)


async def test_a_page_that_is_not_public_needs_a_key_or_this_machine(tmp_path: Path) -> None:
    async with content(tmp_path, PRIVATE) as (client, _):
        async with client.get("/status/") as answer:
            assert (answer.status, answer.headers["Cache-Control"]) == (200, "private, no-cache")
            assert "Access-Control-Allow-Origin" not in answer.headers
        for headers in ({"Host": "evil.example"}, {"X-Forwarded-For": "192.0.2.1"}):
            for path in ("/status", "/status/", "/status/status.json", "/status/nothing"):
                assert (await client.get(path, headers=headers, allow_redirects=False)).status == 403, path


async def test_where_there_are_keys_a_page_that_is_not_public_needs_one_that_may_read_everything(
    tmp_path: Path,
) -> None:
    async with content(tmp_path, PRIVATE, KEY) as (client, service):
        of_jobs = (await service.access.add("some", [Scope.READ], ["prices"])).token
        for headers, status in (({}, 401), ({"X-SpyWeb-Key": of_jobs}, 403), ({"X-SpyWeb-Key": KEY}, 200)):
            async with client.get("/status/", headers=headers) as answer:
                assert (answer.status, MARK in await answer.text()) == (status, False)
        assert (await client.get("/status/", headers={"X-SpyWeb-Key": "wrong"})).status == 401
        assert [line.who for line in await service.trail.lines(limit=9)] == ["nobody"], "guesses are on record"


async def test_the_dashboards_origin_has_no_status_page(tmp_path: Path) -> None:
    service, status = await make_status(tmp_path)
    async with client_of(tcp_app(service, Site(answer_first=[status.answer_first]))) as client:
        assert (await client.get("/status/")).status == 404
