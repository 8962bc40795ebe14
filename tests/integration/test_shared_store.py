"""Several nodes write the same entries in one PostgreSQL: whatever is acknowledged is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

from spyweb.store.encryption import BYTES
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_up_to_date
from tests.fakes.adding_node import ADDITIONS, CALLERS, KEYS, SHARED
from tests.fakes.postgres import PostgresServer

NODES = 4
# Of before: the first addition makes an entry, as all others do at the same time.
EXPIRED = """
    INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    SELECT %s, convert_to(g::text, 'UTF8'), 't', '1000', 1, 1, 1, 1 FROM generate_series(0, %s) g
"""
SUM = "SELECT sum(convert_from(value, 'UTF8')::bigint) FROM entry WHERE namespace = %s"
# Row locks that several transactions share, which cost a file of their own.
SHARED_LOCKS = "SELECT next_multixact_id::text::bigint FROM pg_control_checkpoint()"


def test_no_addition_of_four_processes_is_lost_and_none_counts_twice(own_postgres: PostgresServer) -> None:
    server = PgServer(url=own_postgres.url)
    open_up_to_date(server, 0, BYTES, read_only=False, node=None, is_relaxed=False).close()
    with psycopg.connect(own_postgres.url, autocommit=True, options="-c search_path=spyweb") as connection:

        def ask(statement: str, *parameters: object) -> int:
            (answer,) = connection.execute(statement.encode(), parameters).fetchone() or (0,)
            return int(answer)

        connection.execute(EXPIRED, (SHARED, KEYS // 2))
        connection.execute("INSERT INTO lane SELECT g, 'a' FROM generate_series(1, %s) g", (NODES,))
        connection.execute("CHECKPOINT")
        locks = ask(SHARED_LOCKS)

        command = [sys.executable, "-m", "tests.fakes.adding_node", server.url, server.schema]
        nodes = [
            subprocess.Popen([*command, str(node)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
            for node in range(1, NODES + 1)
        ]
        said = [node.communicate()[0].splitlines()[-1].split() for node in nodes]

        acknowledged, refused = (sum(int(each[at]) for each in said) for at in (0, 1))
        assert ask(SUM, SHARED) == acknowledged
        assert acknowledged + refused == NODES * CALLERS * ADDITIONS
        assert refused == 0
        connection.execute("CHECKPOINT")
        assert ask(SHARED_LOCKS) == locks
