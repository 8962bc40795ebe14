"""What tests of PostgreSQL stand on: a server of their own may end in any way, and the network before it break."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from tests.fakes.postgres import PostgresPlace, PostgresServer, own_server, short_folder
from tests.fakes.postgres_proxy import PostgresProxy, a_proxy

FAILED_OVER = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) > '00000001'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_server() as server:
        yield server


def ask(url: str, statement: str = "SELECT 1") -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row and row[0]


def test_what_a_test_leaves_in_its_schema_is_in_no_other_tests_way(postgres: PostgresPlace) -> None:
    ask(postgres.url, f"CREATE SCHEMA {postgres.schema}")
    ask(postgres.url, f"CREATE TABLE {postgres.schema}.run (id int)")


def test_a_server_lives_on_after_each_kind_of_end(server: PostgresServer) -> None:
    ask(server.url, "CREATE TABLE kept (id int)")
    server.restart()
    server.kill()
    server.start()
    server.freeze()
    server.thaw()
    assert ask(server.url, "SELECT count(*) FROM kept") == 0


def test_a_standby_that_is_promoted_is_on_another_timeline(server: PostgresServer) -> None:
    standby = PostgresServer(short_folder())
    try:
        standby.make(standby_of=server)
        standby.start()
        standby.promote()
        assert ask(standby.url, FAILED_OVER)
    finally:
        standby.close()


async def test_an_answer_that_is_lost_was_done_all_the_same(server: PostgresServer) -> None:
    def lose_the_answer(request: bytes) -> None:
        if b"CREATE TABLE lost" in request:
            proxy.hold_answers()
            asyncio.get_running_loop().call_later(0.3, proxy.cut)

    async with a_proxy(server.url) as proxy:
        proxy.hear = lose_the_answer
        with pytest.raises(psycopg.OperationalError):
            await asyncio.to_thread(ask, proxy.url, "CREATE TABLE lost (id int)")
        proxy.release()
        assert await asyncio.to_thread(ask, proxy.url, "SELECT count(*) FROM lost") == 0


async def test_a_proxy_delays_and_refuses(server: PostgresServer) -> None:
    async with a_proxy(server.url) as proxy:
        proxy.delay_s = 0.05
        assert await answer_takes(proxy) >= 0.1
        proxy.refuses = True
        with pytest.raises(psycopg.OperationalError):
            await asyncio.to_thread(ask, proxy.url)


async def answer_takes(proxy: PostgresProxy) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.to_thread(ask, proxy.url)
    return loop.time() - began
