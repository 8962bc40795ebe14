"""A schema on the run's PostgreSQL, with the tables of this spyweb."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spyweb.store.encryption import BYTES
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_up_to_date
from tests.fakes.stores import fresh_server


@pytest.fixture
def server() -> Iterator[PgServer]:
    with fresh_server() as server:
        open_up_to_date(server, 0, BYTES).close()
        yield server
