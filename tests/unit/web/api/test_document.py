"""The document, as it is served."""

from __future__ import annotations

import pytest

from spyweb.web.api import document
from spyweb.web.app import tcp_app
from tests.fakes.client import client_of, get_json
from tests.fakes.daemon_service import FakeDaemonService


async def test_the_document_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(tcp_app(FakeDaemonService())) as client:
        status, first = await get_json(client, "/api/openapi.json")
        assert isinstance(first, dict)
        assert (status, first["openapi"]) == (200, "3.1.0")
        monkeypatch.setattr(document, "make_document", None)
        assert await get_json(client, "/api/openapi.json") == (200, first)


async def test_with_a_key_strangers_do_not_see_it() -> None:
    async with client_of(tcp_app(FakeDaemonService(api_key="k"))) as client:
        assert (await get_json(client, "/api/openapi.json"))[0] == 401
