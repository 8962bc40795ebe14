"""A daemon's doors, and who may come in by them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.keys import Doors, open_doors


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    async with open_doors() as opened:
        yield opened
