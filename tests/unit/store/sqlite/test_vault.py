"""A database under a key: encrypted from its first opening on, opened by no other key, given another one whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.store.model.entries import Watch
from spyweb.store.sqlite import store as sqlite
from spyweb.store.sqlite.damage import files_of
from spyweb.store.sqlite.store import Store, open_store, rotate_key
from tests.fakes.changes import PRICES, kept
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KEY, LOGGED, RULES, all_items, look, put

OTHER = bytes(32)
SECRET = b"a very secret value"
VALUES: list[Value] = [SECRET, [SECRET], {1: SECRET}, 12345678901234567, 1.5, True]


async def open_with(path: Path, key: bytes | None, *, read_only: bool = False) -> Store:
    return await open_store(path, clock=FakeClock(), key=key, history=RULES, read_only=read_only)


async def fill(path: Path, key: bytes | None) -> None:
    """Values, past versions, pending events, and a value that is deleted."""
    store = await open_with(path, key)
    store.events.watch([Watch(job=PRICES, namespace=LOGGED)])
    for number, value in enumerate(VALUES):
        await put(store, b"%d" % number, value, namespace=LOGGED)
        await put(store, b"%d" % number, [value], namespace=LOGGED)
        await put(store, b"%d" % number, value)
    await store.values.set("state", b"deleted", SECRET * 1000)
    await store.values.delete("state", b"deleted")
    await store.close()


async def check_all(path: Path, key: bytes | None) -> None:
    store = await open_with(path, key)
    for number, value in enumerate(VALUES):
        assert await look(store, b"%d" % number) == value
        past = await store.values.version(LOGGED, b"%d" % number, 1)
        assert past
        assert past.value == value
    assert [event.new for event in await kept(store)] == [new for each in VALUES for new in (each, [each])]
    assert await store.values.get("state", b"0") == SECRET
    await store.close()


def on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in files_of(path) if file.exists())


async def test_nothing_of_a_value_reaches_the_disk(path: Path) -> None:
    await fill(path, KEY)

    assert SECRET not in on_disk(path)
    await check_all(path, KEY)


async def test_what_was_written_before_there_was_a_key_is_encrypted_when_it_comes(path: Path) -> None:
    await fill(path, None)
    assert SECRET in on_disk(path)

    await (await open_with(path, KEY)).close()

    assert SECRET not in on_disk(path)
    await check_all(path, KEY)


class Killed(BaseException):
    """Here the process would be gone."""


async def test_what_is_left_of_plain_values_by_a_kill_is_gone_after_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path, None)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "purge", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            await open_with(path, KEY)
    assert SECRET in on_disk(path)

    await (await open_with(path, KEY)).close()

    assert SECRET not in on_disk(path)
    await check_all(path, KEY)


async def test_what_was_written_before_there_was_a_key_can_be_looked_at_until_it_is_encrypted(path: Path) -> None:
    await fill(path, None)

    store = await open_with(path, KEY, read_only=True)
    try:
        assert await look(store, b"0") == SECRET
    finally:
        await store.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(("key", "reason"), [(OTHER, "with another key"), (None, "no key is given")])
async def test_a_wrong_key_is_one_clear_line_and_nothing_is_rewritten(
    path: Path, key: bytes | None, reason: str, read_only: bool
) -> None:
    await fill(path, KEY)
    before = path.read_bytes()

    with pytest.raises(StoreError, match=f"^{path}: its values are encrypted.*{reason}"):
        await open_with(path, key, read_only=read_only)

    assert path.read_bytes() == before
    await check_all(path, KEY)


@pytest.mark.parametrize(
    ("written", "old", "new"),
    [(KEY, KEY, OTHER), (KEY, KEY, None), (None, None, KEY), (None, KEY, OTHER)],
    ids=["another", "none any more", "the first", "another at once, before the first was used"],
)
async def test_another_key_takes_the_place_of_the_old_one(
    path: Path, written: bytes | None, old: bytes | None, new: bytes | None
) -> None:
    await fill(path, written)

    rotate_key(path, old=old, new=new)

    await check_all(path, new)
    if new:
        assert SECRET not in on_disk(path)
        with pytest.raises(StoreError):
            await open_with(path, old)


async def test_without_the_old_key_there_is_no_new_one(path: Path) -> None:
    await fill(path, KEY)
    before = path.read_bytes()

    with pytest.raises(StoreError, match="with another key"):
        rotate_key(path, old=OTHER, new=KEY)

    assert path.read_bytes() == before


async def test_a_value_that_does_not_open_stops_the_change_of_the_key_and_nothing_is_rewritten(path: Path) -> None:
    await fill(path, KEY)
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("UPDATE entry SET value = x'00' WHERE namespace = 'state' AND key = x'30'")
    connection.close()

    with pytest.raises(StoreError, match="the value of b'0' in state can't be decrypted"):
        rotate_key(path, old=KEY, new=OTHER)

    store = await open_with(path, KEY)
    assert await look(store, b"1") == [SECRET]
    await store.close()


async def test_a_key_that_is_changed_is_told_so_even_where_the_file_can_not_be_written_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path, None)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "purge", Mock(side_effect=sqlite3.OperationalError("database or disk is full")))
        assert not rotate_key(path, old=None, new=KEY)
    assert SECRET in on_disk(path)

    await check_all(path, KEY)

    assert SECRET not in on_disk(path)
    assert rotate_key(path, old=KEY, new=OTHER)


async def test_a_reader_in_between_keeps_what_is_left_for_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path, None)
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchone()
        assert not rotate_key(path, old=None, new=KEY)

    await check_all(path, KEY)

    assert SECRET not in on_disk(path)


async def test_many_values_change_their_key(path: Path) -> None:
    store = await open_with(path, KEY)
    writes = [store.values.set("state", b"%d" % number, b"%d" % number) for number in range(2500)]
    for write in writes:
        await write
    await store.close()

    rotate_key(path, old=KEY, new=OTHER)

    store = await open_with(path, OTHER)
    found = await all_items(store, "state")
    assert sorted(int(key) for key, entry in found if entry.value == key) == list(range(2500))
    await store.close()


def test_there_must_be_a_database(path: Path) -> None:
    with pytest.raises(StoreError):
        rotate_key(path, old=KEY, new=OTHER)
