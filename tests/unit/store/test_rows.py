"""Text that SQLite can't hold does not stop a run from being recorded."""

from __future__ import annotations

from spyweb.store.rows import storable


def test_text_is_stored_as_it_is() -> None:
    assert storable("läuft ✓") == "läuft ✓"


def test_lone_surrogates_become_question_marks() -> None:
    assert storable("bad \udcff byte") == "bad ? byte"
