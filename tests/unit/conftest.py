"""Give tests of parts what most of them use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.harness import Harness, harness


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def t() -> AsyncIterator[Harness]:
    """Jobs under a real scheduler and runner, over a store in memory."""
    async with harness() as opened:
        yield opened
