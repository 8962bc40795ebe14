"""A store on PostgreSQL that can't be opened: one line says why and what helps, without the password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from spyweb.clock import RealClock
from spyweb.errors import StoreError
from spyweb.store.postgres import server as postgres
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from tests.fakes.command import spyweb
from tests.fakes.postgres import ADMIN, PostgresServer, own_server, short_folder, url_at

HBA = """
    local all locked scram-sha-256
    local all barred reject
    local all,replication all trust
"""
SET_UP = """
    CREATE ROLE locked LOGIN PASSWORD 'right';
    CREATE ROLE barred LOGIN;
    CREATE ROLE guest LOGIN;
    CREATE SCHEMA theirs;
    CREATE SCHEMA half;
    GRANT USAGE ON SCHEMA half TO guest;
    CREATE SCHEMA later;
    CREATE TABLE later.migration (number bigint, name text);
    INSERT INTO later.migration VALUES (9999, '9999_later');
    GRANT USAGE ON SCHEMA later TO spyweb;
    GRANT SELECT ON later.migration TO spyweb;
"""
LATIN = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, str]]:
    """A server, its standby, and nothing."""
    folder = short_folder()
    rules = folder / "pg_hba.conf"
    rules.write_text(HBA)
    rules.chmod(0o644)
    with own_server({"hba_file": str(rules), "fsync": "off"}) as server:
        with closing(psycopg.connect(url_at(server.folder, ADMIN), autocommit=True)) as connection:
            connection.execute(SET_UP)
            connection.execute(LATIN)
        standby = PostgresServer(short_folder())
        try:
            standby.make(standby_of=server)
            standby.start()
            yield {"server": str(server.folder), "standby": str(standby.folder), "nowhere": str(folder)}
        finally:
            standby.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ann:sesame@h/x?sslmod=require", "[store] url: unknown option 'sslmod'; did you mean \"sslmode\"?"),
        ("ann:sesame@h/x?options=-c%20a=b", "[store] url: expected "),
        ("ann:sesame@127.0.0.1/x?sslmode=on", 'postgresql://127.0.0.1/x: invalid sslmode value: "on"'),
        ("ann:sesame@h.invalid/x", "postgresql://h.invalid/x: can't be reached: failed to resolve host 'h.invalid'"),
        ("ann:sesame@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x: can't be reached: Connection refused"),
        ("ann:sesame@/x?host=nowhere", "postgresql://nowhere/x: can't be reached: No such file or directory"),
        ("nobody:sesame@/postgres?host=server", 'role "nobody" does not exist'),
        ("barred:sesame@/postgres?host=server", 'pg_hba.conf rejects connection for host "[local]", user "barred"'),
        ("locked:sesame@/postgres?host=server", 'password authentication failed for user "locked"'),
        ("locked@/postgres?host=server", "no password supplied: see [store] password, or ~/.pgpass"),
        ("spyweb:sesame@/nothing?host=server", 'database "nothing" does not exist'),
        ("guest:sesame@/postgres?host=server", ': GRANT CREATE ON DATABASE "postgres" TO "guest"'),
        ("guest:sesame@/postgres?host=server theirs", ': GRANT USAGE, CREATE ON SCHEMA "theirs" TO "guest"'),
        ("guest:sesame@/postgres?host=server half", ': GRANT USAGE, CREATE ON SCHEMA "half" TO "guest"'),
        ("spyweb:sesame@/latin?host=server", "the database's encoding is LATIN1: make one WITH ENCODING 'UTF8'"),
        ("spyweb:sesame@/postgres?host=server later", "written by a newer spyweb: it has 9999_later, and spyweb "),
        ("spyweb:sesame@/postgres?host=standby", ": it takes no writes: it is a standby, or set to read only"),
        ("spyweb:sesame@/postgres?host=standby&target_session_attrs=any", ": it takes no writes: it is a standby"),
    ],
)
def test_a_store_that_can_t_be_opened_is_one_line(
    tmp_path: Path, hosts: dict[str, str], monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    place, _, schema = url.partition(" ")
    for name, folder in hosts.items():
        place, said = place.replace(f"={name}", f"={folder}"), said.replace(f"//{name}/", f"//{folder}/")
    (tmp_path / "config.toml").write_text(f'[store]\nurl = "postgresql://{place}"\nschema = "{schema or "spyweb"}"\n')
    answer = spyweb("state", "set", "a", "5", root=tmp_path)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1), answer
    assert said in answer.err
    assert ("can't be reached" in answer.err) == ("can't be reached" in said), "only then a daemon waits"
    assert not any(word in answer.err for word in ("sesame", "connection to server", "FATAL"))


async def test_a_server_that_is_too_old_or_behind_a_pooler_is_refused(
    hosts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = PgServer(url=f"postgresql://spyweb@/postgres?host={hosts['server']}")
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "OLDEST", 99)
        with pytest.raises(StoreError, match=r"PostgreSQL 1\d\.\d+.*: expected 99 or later"):
            await open_postgres(at, clock=RealClock())
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    with pytest.raises(StoreError, match=r"a pooler is there, .*: expected PostgreSQL's own address"):
        await open_postgres(at, clock=RealClock())


@pytest.mark.parametrize("place", ["@127.0.0.1:1/x", "%@h/x", "@/x?host=/nowhere"])
async def test_no_cause_of_an_error_has_the_password(place: str) -> None:
    with pytest.raises(StoreError) as refused:
        await open_postgres(PgServer(url=f"postgresql://a:sesame{place}"), clock=RealClock())
    error: BaseException | None = refused.value
    while error:
        assert "sesame" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__
