"""Give tests of parts what most of them use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.web.app import socket_app
from tests.fakes.client import Client, client_of
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.harness import Harness, harness
from tests.fakes.keys import Doors, open_doors


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def t() -> AsyncIterator[Harness]:
    """Jobs under a real scheduler and runner, over a store in memory."""
    async with harness() as opened:
        yield opened


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    async with open_doors() as opened:
        yield opened


@pytest.fixture
async def service() -> FakeDaemonService:
    return FakeDaemonService()


@pytest.fixture
async def client(service: FakeDaemonService) -> AsyncIterator[Client]:
    async with client_of(socket_app(service)) as client:
        yield client


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in UTC whose one job is prices; no daemon runs."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "prices.lua").write_text('-- /// job\n-- name = "Prices"\n-- ///\n')
    (tmp_path / "config.toml").write_text('[daemon]\ntimezone = "UTC"\n')
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path
