"""A project moves to PostgreSQL and back by a command; commands without a daemon read and write wherever it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from spyweb.settings.load import load_settings, store_at
from spyweb.store.opening import need_postgres
from tests.fakes.command import spyweb
from tests.fakes.postgres import PostgresPlace

TOML = '[store]\nschema = "{schema}"\n# url\n'


@pytest.fixture
def root(tmp_path: Path, postgres: PostgresPlace) -> Path:
    (tmp_path / "config.toml").write_text(TOML.format(schema=postgres.schema))
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "hello.lua").write_text(
        '-- /// job\n-- every = "never"\n-- ///\nstore_set("n", 1)\nreturn "done"\n'
    )
    return tmp_path


def use(root: Path, url: str) -> None:
    path = root / "config.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("#", "url"))]
    path.write_text("\n".join([*lines, f'url = "{url}"', ""]))


def ok(root: Path, *words: str) -> str:
    answer = spyweb(*words, root=root)
    assert (answer.code, answer.err.count("\n") < 3) == (0, True), answer
    return answer.out


def refusal(root: Path, *words: str) -> str:
    answer = spyweb(*words, root=root)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1), answer
    return answer.err.removeprefix("spyweb: ").strip()


def test_a_project_goes_to_postgresql_and_back(root: Path, postgres: PostgresPlace) -> None:
    ok(root, "run", "hello")
    ok(root, "state", "set", "a", "5")
    moved = spyweb("store", "move", postgres.url.replace("spyweb@", "spyweb:sesame@"), "-y", root=root)
    assert moved.code == 0
    assert [line.split()[:2] for line in moved.out.splitlines()[1:]] == [
        ["entry", "2"],
        ["run", "1"],
        ["sample", "1"],
    ]
    assert moved.err == (
        f'now set url = "{postgres.url}" in [store] of config.toml; '
        "its password belongs into SPYWEB_STORE_PASSWORD or ~/.pgpass\n"
    )
    assert "data/spyweb.db: everything was moved to postgresql://" in refusal(root, "state", "get", "a")

    use(root, postgres.url)
    assert ok(root, "state", "get", "a") == "5\n"
    assert ok(root, "uptime", "hello").splitlines()[1].split()[:3] == ["24h", "100", "%"]
    ok(root, "state", "set", "b", "6")
    assert json.loads(ok(root, "state", "stats", "-o", "json"))["backend"] == "postgresql"
    ok(root, "pause", "hello")
    ok(root, "run", "hello")
    assert [run["id"] for run in json.loads(ok(root, "runs", "-o", "json"))] == [2, 1]

    found = json.loads(ok(root, "store", "move", "sqlite:///data/back.db", "-y", "-o", "json"))
    rows = {each["table"]: each["rows"] for each in found["tables"] if each["rows"]}
    assert rows == {"cursor": 1, "entry": 3, "run": 2, "sample": 3, "schedule": 1}
    assert ": everything was moved to /" in refusal(root, "run", "hello")
    use(root, found["url"])
    assert ok(root, "state", "get", "b") == "6\n"
    ok(root, "run", "hello")


def test_what_can_t_be_moved_is_refused_in_one_line(root: Path, postgres: PostgresPlace) -> None:
    for url, said in [
        (postgres.url, f"{root}: there is no database, so nothing is there to be moved"),
        ("sqlite:///other.db", "expected another PostgreSQL, or one in place of SQLite, or SQLite in place of one"),
        ("memory:", "expected another PostgreSQL, or one in place of SQLite"),
        ("redis://x:sesame@y", 'command line: URL: expected "sqlite:///" and the path of a file, '),
    ]:
        told = refusal(root, "store", "move", url, "-y")
        assert told.startswith(said)
        assert "sesame" not in told
    ok(root, "state", "set", "a", "5")
    assert "Input is not a terminal" in refusal(root, "store", "move", postgres.url)
    assert ok(root, "state", "get", "a") == "5\n"


def test_before_the_first_start_nothing_is_stored_on_postgresql_either(root: Path, postgres: PostgresPlace) -> None:
    use(root, postgres.url)
    assert json.loads(ok(root, "state", "list", "-o", "json")) == []
    assert json.loads(ok(root, "runs", "-o", "json")) == []
    ok(root, "state", "set", "a", "5")
    assert ok(root, "state", "get", "a") == "5\n"


def test_with_postgresql_sql_about_spywebs_own_data_is_refused(root: Path, postgres: PostgresPlace) -> None:
    use(root, postgres.url)
    (root / "jobs" / "sql.lua").write_text('-- /// job\n-- node = "fra"\n-- ///\ndb_query("SELECT * FROM records")\n')
    answer = spyweb("run", "sql", root=root)
    assert answer.code == 1
    assert "with PostgreSQL there are no views lua_user, records, seen" in answer.out


def test_a_store_is_named_by_a_url_as_in_the_settings(root: Path) -> None:
    settings = load_settings(root, environ={}, flags={})
    found = store_at("postgres://ann:s%40me@db/x", settings, {})
    assert (found.url, found.hidden, found.schema) == ("postgres://ann@db/x", "s@me", settings.store.schema)
    assert store_at("sqlite:///x.db", settings, {}).path == root / "x.db"


def test_without_its_extra_postgresql_is_refused_in_one_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_postgres()
    use(root, "postgresql://ann@db/x")
    monkeypatch.setitem(sys.modules, "spyweb.store.postgres.server", None)
    assert (
        refusal(root, "state", "get", "a") == "[store] url: PostgreSQL needs an extra: pip install 'spyweb[postgres]'"
    )
