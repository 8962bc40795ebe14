"""A monitor job with all around it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.monitor import Shop, shop


@pytest.fixture
async def s() -> AsyncIterator[Shop]:
    async with shop() as opened:
        yield opened
