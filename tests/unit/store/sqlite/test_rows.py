"""Text that SQLite can't hold does not stop a run from being recorded, nor damaged text one from being read."""

from __future__ import annotations

from spyweb.store.sqlite.rows import read_trigger, storable


def test_text_is_stored_as_it_is() -> None:
    assert storable("läuft ✓") == "läuft ✓"


def test_lone_surrogates_become_question_marks() -> None:
    assert storable("bad \udcff byte") == "bad ? byte"


def test_a_run_whose_trigger_is_damaged_can_still_be_read() -> None:
    assert (read_trigger('{"type":"manual"}'), read_trigger("{x")) == ({"type": "manual"}, {})
