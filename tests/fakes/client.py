"""Ask one of the two apps over loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from spyweb.web.api.services import Services
from spyweb.web.app import Site, content_app, tcp_app

DASHBOARD_PORT = 7980

Client = TestClient[web.Request, web.Application]


def content_of(service: Services, site: Site) -> web.Application:
    """Make the app of a project's content."""
    return content_app(tcp_app(service, site), site, DASHBOARD_PORT)


@asynccontextmanager
async def client_of(app: web.Application) -> AsyncIterator[Client]:
    async with TestClient(TestServer(app)) as client:
        yield client


async def get_json(client: Client, path: str, **headers: str) -> tuple[int, Any]:
    async with client.get(path, headers=headers) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


def failure(text: str, code: str, field: str | None = None) -> dict[str, object]:
    """Return the body of every answer that is an error."""
    return {"error": text, "code": code, "message": text, "field": field}


async def post_json(client: Client, path: str) -> tuple[int, Any]:
    async with client.post(path) as answer:
        return answer.status, await answer.json()
