"""Nothing is written over a cursor that somebody else has moved."""

from __future__ import annotations

import pytest
from msgspec import structs

from spyweb.errors import StoreError
from spyweb.model import Cursor, JobId
from spyweb.store.cursors import write_cursors
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, make_cursor, refuse


async def test_what_is_written_is_decided_by_what_is_on_record(store: Store) -> None:
    stored = [make_cursor(due_ms=5000), make_cursor(NEWS)]
    await store.runs.record(Change(cursors=stored))
    known: dict[JobId, Cursor | None] = {PRICES: make_cursor(), NEWS: None}
    decided: list[list[int]] = []

    def decide() -> Change:
        cursors = [structs.replace(known[job] or make_cursor(job, due_ms=0), paused=True) for job in (PRICES, NEWS)]
        decided.append([cursor.due_ms for cursor in cursors])
        return Change(expects=known, cursors=cursors)

    written = await write_cursors(store.runs, decide, known.__setitem__)

    assert decided == [[1000, 0], [5000, 0], [5000, 1000]]
    assert written.cursors == [structs.replace(cursor, paused=True) for cursor in stored]
    assert await store.runs.cursors() == {cursor.job: cursor for cursor in written.cursors}


async def test_a_cursor_that_is_on_record_no_more_is_told_as_none(store: Store) -> None:
    known: dict[JobId, Cursor | None] = {PRICES: make_cursor()}

    def decide() -> Change:
        return Change(expects=known, cursors=[known[PRICES] or make_cursor(due_ms=7000)])

    await write_cursors(store.runs, decide, known.__setitem__)
    assert await store.runs.cursors() == {PRICES: make_cursor(due_ms=7000)}


async def test_any_other_refusal_is_for_whoever_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.runs, "record", refuse)
    with pytest.raises(StoreError, match="full"):
        await write_cursors(
            store.runs, lambda: Change(cursors=[make_cursor()]), dict[JobId, Cursor | None]().__setitem__
        )


async def test_where_no_cursor_is_to_be_written_the_store_is_not_asked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.runs, "record", refuse)
    assert await write_cursors(store.runs, Change, dict[JobId, Cursor | None]().__setitem__) == Change()
