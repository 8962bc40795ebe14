"""What is decided about an entry, without a store: rows in, effects out."""

from __future__ import annotations

import pytest

from spyweb.errors import StoreError
from spyweb.model import ChangeKind, Value
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.model.entries import KEEP, Blind, Drop, Entry, Leave, Put, Replacement, Transform
from spyweb.store.sqlite.changes import Effect, EntryContext, Row, decide, entry_of, is_live, renewed

NOW = 5_000
HERE = EntryContext(PLAIN, "state", b"k", NOW)


def make_row(value: bytes = b"old", *, version: int = 4, expires_ms: int | None = None, rowid: int = 9) -> Row:
    return Row("s", value, expires_ms, version, 1_000, 2_000, rowid)


DAMAGED = Row("j", "{no JSON", None, 4, 1_000, 2_000, 9)


def kinds(effect: Effect) -> list[ChangeKind]:
    return [note.kind for note in effect.notes]


def put(value: Value = b"new") -> Transform:
    return lambda entry: Put(value)


def test_an_entry_expires_at_its_very_moment() -> None:
    assert is_live(make_row(expires_ms=NOW + 1), NOW)
    assert not is_live(make_row(expires_ms=NOW), NOW)
    assert is_live(make_row(), NOW)


def test_a_new_entry_begins_at_version_one_and_now() -> None:
    effect = decide(HERE, None, put())

    assert effect.row == Row("s", b"new", None, 1, NOW, NOW, 0)
    assert effect.replaced is None
    assert kinds(effect) == [ChangeKind.CREATED]


def test_a_change_keeps_the_place_and_the_creation_and_counts_the_version_up() -> None:
    effect = decide(HERE, make_row(), put())

    assert effect.row == Row("s", b"new", None, 5, 1_000, NOW, 9)
    assert effect.replaced == make_row()
    assert kinds(effect) == [ChangeKind.UPDATED]


def test_what_is_written_over_an_expired_entry_is_new_but_counts_on() -> None:
    expired = make_row(expires_ms=NOW)
    effect = decide(HERE, expired, put())

    assert effect.row == Row("s", b"new", None, 5, NOW, NOW, 0)
    assert effect.replaced is None, "what has expired is no history"
    assert [(note.kind, note.old) for note in effect.notes] == [
        (ChangeKind.EXPIRED, expired),
        (ChangeKind.CREATED, None),
    ]


def test_an_entry_that_is_gone_but_has_a_history_counts_on_from_there() -> None:
    row = decide(HERE, None, put(), last_version=7).row
    assert row
    assert row.version == 8


@pytest.mark.parametrize(
    ("given", "expires_ms"), [(Put(b"v"), None), (Put(b"v", 9_000), 9_000), (Put(b"v", KEEP), 8_000)]
)
def test_an_expiry_is_replaced_unless_it_is_to_be_kept(given: Put, expires_ms: int | None) -> None:
    row = decide(HERE, make_row(expires_ms=8_000), lambda entry: given).row
    assert row
    assert row.expires_ms == expires_ms


def test_the_expiry_of_what_has_expired_is_not_kept() -> None:
    row = decide(HERE, make_row(expires_ms=NOW), lambda entry: Put(b"v", KEEP)).row
    assert row
    assert row.expires_ms is None


def test_a_transform_sees_a_live_entry_and_no_expired_one() -> None:
    seen: list[Entry | None] = []

    def look(entry: Entry | None) -> Leave:
        seen.append(entry)
        return Leave()

    decide(HERE, make_row(), look)
    decide(HERE, make_row(expires_ms=NOW), look)
    decide(HERE, None, look)

    assert [entry and entry.value for entry in seen] == [b"old", None, None]


def test_to_leave_an_entry_changes_nothing_and_tells_nobody() -> None:
    assert decide(HERE, make_row(expires_ms=NOW), lambda entry: Leave("seen")) == Effect("seen")


def test_a_deletion_removes_the_row_and_is_told() -> None:
    effect = decide(HERE, make_row(), lambda entry: Drop("gone"))

    assert (effect.result, effect.changes, effect.row, effect.replaced) == ("gone", True, None, make_row())
    assert kinds(effect) == [ChangeKind.DELETED]


def test_a_deletion_of_what_has_expired_removes_its_row_and_only_tells_that_it_expired() -> None:
    effect = decide(HERE, make_row(expires_ms=NOW), lambda entry: Drop())

    assert (effect.changes, effect.replaced) == (True, None)
    assert kinds(effect) == [ChangeKind.EXPIRED]


@pytest.mark.parametrize("always_tell", [True, False])
def test_a_deletion_of_nothing_is_told_only_where_that_is_asked_for(always_tell: bool) -> None:
    effect = decide(HERE, None, lambda entry: Drop(always_tell=always_tell))

    assert not effect.changes
    assert kinds(effect) == [ChangeKind.DELETED] * always_tell


@pytest.mark.parametrize(
    "change", [Replacement(lambda: Put(b"new")), Blind(lambda there: Put(b"new") if there else Leave())]
)
def test_a_damaged_value_can_be_written_over(change: Transform) -> None:
    row = decide(HERE, DAMAGED, change).row
    assert row
    assert (row.column, row.version) == (b"new", 5)


def test_a_damaged_value_can_be_deleted() -> None:
    assert decide(HERE, DAMAGED, Blind(lambda there: Drop(there))).result is True


def test_a_transform_that_would_read_a_damaged_value_fails() -> None:
    with pytest.raises(StoreError):
        decide(HERE, DAMAGED, put())


def test_a_blind_change_is_told_whether_there_is_a_live_entry() -> None:
    told: list[bool] = []

    def note(there: bool) -> Leave:
        told.append(there)
        return Leave()

    for row in (make_row(), make_row(expires_ms=NOW), None):
        decide(HERE, row, Blind(note))

    assert told == [True, False, False]


def test_another_expiry_is_a_new_version_of_the_same_value() -> None:
    assert renewed(HERE, make_row(), 9_000) == Row("s", b"old", 9_000, 5, 1_000, NOW, 9)


def test_an_entry_is_what_its_row_says() -> None:
    assert entry_of(PLAIN, "state", b"k", make_row(expires_ms=8_000)) == Entry(
        value=b"old", version=4, created_ms=1_000, updated_ms=2_000, expires_ms=8_000
    )
