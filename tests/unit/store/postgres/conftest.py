"""A schema on the run's PostgreSQL, with the tables of this spyweb."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spyweb.store.encryption import BYTES
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_up_to_date
from tests.fakes.postgres import empty_schema


@pytest.fixture
def server() -> Iterator[PgServer]:
    with empty_schema() as (url, schema):
        server = PgServer(url=url, schema=schema)
        open_up_to_date(server, 0, BYTES).close()
        yield server
