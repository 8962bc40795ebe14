"""Migrations: in order, once, in a transaction each, after a copy; and what is newer is refused by name."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.errors import StoreNewer
from spyweb.store.sqlite.migrate import Migration, create, find_pending, load_migrations, migrate, split_statements

FIRST = Migration(number=1, name="0001_first", sql="CREATE TABLE a (x);\nCREATE TABLE b (x);")
SECOND = Migration(number=2, name="0002_second", sql="ALTER TABLE a ADD COLUMN y DEFAULT 5;")
BROKEN = Migration(number=2, name="0002_broken", sql="CREATE TABLE c (x);\nINSERT INTO absent VALUES (1);")


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def schema(database: sqlite3.Connection) -> list[str]:
    """Return the statements that the schema comes to, without comments and white space: a column that was added is the
    same as one that was there from the start."""
    statements = [str(sql) for (sql,) in database.execute("SELECT sql FROM sqlite_master ORDER BY name")]
    return [re.sub(r"\s+|--[^\n]*", "", statement) for statement in statements]


def test_the_migrations_of_this_spyweb_are_numbered_without_a_gap() -> None:
    known = load_migrations()

    assert [migration.number for migration in known] == list(range(1, len(known) + 1))
    assert all(re.fullmatch(r"\d{4}_[a-z_0-9]+", migration.name) for migration in known)


def test_pending_migrations_are_applied_in_order_and_recorded(database: sqlite3.Connection, path: Path) -> None:
    migrate(database, path, [FIRST, SECOND], 1000)

    assert tables(database) == {"a", "b", "migration"}
    recorded = database.execute("SELECT number, name, applied_ms FROM migration").fetchall()
    assert recorded == [(1, "0001_first", 1000), (2, "0002_second", 1000)]


@pytest.mark.parametrize("past", range(len(load_migrations())))
def test_migrating_from_each_past_version_gives_the_schema_of_a_new_file(tmp_path: Path, past: int) -> None:
    known = load_migrations()
    old, new = (sqlite3.connect(tmp_path / name, isolation_level=None) for name in ("old.db", "new.db"))
    create(new, 0)
    migrate(old, tmp_path / "old.db", known[: past + 1], 0)
    migrate(old, tmp_path / "old.db", known, 0)

    assert schema(old) == schema(new)
    for recorded in ("SELECT * FROM migration", "PRAGMA user_version"):
        assert old.execute(recorded).fetchall() == new.execute(recorded).fetchall()
    old.close()
    new.close()


def test_uptime_that_earlier_versions_have_counted_is_kept(tmp_path: Path) -> None:
    known, path = load_migrations(), tmp_path / "old.db"
    old, hour_ms = sqlite3.connect(path, isolation_level=None), 3_600_000
    migrate(old, path, known[:23], 0)
    old.execute("INSERT INTO uptime VALUES ('a', 'day', 0, 100, 0, 0, 1, 0, 'A2')")
    standing = ("a", hour_ms + 5, hour_ms + 900, 1, 9 * hour_ms, 700, 20, 3, 2, 1, "B")
    old.execute("INSERT INTO standing VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", standing)
    migrate(old, path, known, 0)

    assert old.execute("SELECT * FROM uptime ORDER BY unit").fetchall() == [
        ("a", "day", 0, 800, 20, 3, 3, 1, "{}"),
        ("a", "hour", hour_ms, 700, 20, 3, 2, 1, "{}"),
    ]
    assert old.execute("SELECT * FROM standing").fetchall() == [("a", hour_ms + 5, 1, 9 * hour_ms, hour_ms + 900)]
    old.close()


def test_an_old_database_is_copied_before_it_is_migrated(database: sqlite3.Connection, path: Path) -> None:
    migrate(database, path, [FIRST], 0)
    database.execute("INSERT INTO a VALUES (7)")

    migrate(database, path, [FIRST, SECOND], 0)

    copy = sqlite3.connect(path.with_name("spyweb.db.before-0002"))
    assert copy.execute("SELECT * FROM a").fetchall() == [(7,)]
    assert find_pending(copy, path, [FIRST, SECOND]) == [SECOND]
    copy.close()
    assert database.execute("SELECT * FROM a").fetchall() == [(7, 5)]


def test_an_upgrade_says_where_the_copy_is_which_only_its_owner_can_read(
    database: sqlite3.Connection, path: Path
) -> None:
    with capture_logs() as new:
        migrate(database, path, [FIRST], 1000)
    with capture_logs() as told:
        migrate(database, path, [FIRST, SECOND], 2000)

    copy = path.with_name("spyweb.db.before-0002")
    assert [(line["event"], line["to"], line["copy"]) for line in told] == [
        ("the database is brought up to date", "0002_second", str(copy))
    ]
    assert new == []
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_migration_that_fails_leaves_the_database_as_it_was(database: sqlite3.Connection, path: Path) -> None:
    migrate(database, path, [FIRST], 0)
    database.execute("INSERT INTO a VALUES (7)")
    before = "\n".join(database.iterdump())

    with pytest.raises(sqlite3.OperationalError, match="migration 0002_broken failed: no such table: absent"):
        migrate(database, path, [FIRST, BROKEN], 0)

    assert "\n".join(database.iterdump()) == before
    assert not database.in_transaction


def test_a_newer_database_is_refused_by_name_and_left_alone(database: sqlite3.Connection, path: Path) -> None:
    migrate(database, path, [FIRST, SECOND], 0)
    before = path.read_bytes()

    with pytest.raises(StoreNewer, match=r"it has 0002_second, and spyweb \S+ knows up to 0001_first"):
        migrate(database, path, [FIRST], 0)

    assert path.read_bytes() == before


def test_a_database_of_another_branch_is_refused_though_its_number_is_known(
    database: sqlite3.Connection, path: Path
) -> None:
    migrate(database, path, [FIRST, SECOND], 0)
    other = Migration(number=2, name="0002_other", sql="CREATE TABLE d (x);")

    with pytest.raises(StoreNewer, match="it has 0002_second"):
        migrate(database, path, [FIRST, other], 0)


def test_statements_are_split_where_they_end() -> None:
    trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  SELECT 1;\nEND;\n"
    sql = f"-- a; comment\nCREATE TABLE a (x DEFAULT ';');\n{trigger}SELECT 2"

    assert list(split_statements(sql)) == ["-- a; comment\nCREATE TABLE a (x DEFAULT ';');\n", trigger, "SELECT 2"]
