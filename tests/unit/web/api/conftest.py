"""The API of a service, as whoever may everything asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from spyweb.web.app import socket_app
from tests.fakes.client import Client, client_of
from tests.fakes.daemon_service import FakeDaemonService


@pytest.fixture
async def service() -> FakeDaemonService:
    return FakeDaemonService()


@pytest.fixture
async def client(service: FakeDaemonService) -> AsyncIterator[Client]:
    async with client_of(socket_app(service)) as client:
        yield client
