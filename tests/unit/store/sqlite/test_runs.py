"""What a change of runs costs, and text that SQLite can't hold or that is damaged."""

from __future__ import annotations

import pytest

from spyweb.model import RunId, Trigger
from spyweb.store.model.runs import Begin, Change
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.runs import kind_of, read_trigger, storable
from tests.fakes.changes import make_cursor, make_end, make_run, make_skipped


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (Change(end=[make_end(RunId(1))]), OpKind.WRITE),
        (Change(begin=[Begin(run=RunId(1), started_ms=1)]), OpKind.WRITE),
        (Change(skipped=[make_skipped()]), OpKind.WRITE),
        (Change(new=[make_run()], cursors=[make_cursor()]), OpKind.SEVERAL),
        (Change(new=[make_run(), make_run()]), OpKind.SEVERAL),
    ],
)
def test_only_changes_of_several_writes_have_a_savepoint(change: Change, kind: OpKind) -> None:
    assert kind_of(change) is kind


def test_text_is_stored_as_it_is() -> None:
    assert storable("läuft ✓") == "läuft ✓"


def test_lone_surrogates_become_question_marks() -> None:
    assert storable("bad \udcff byte") == "bad ? byte"


def test_a_run_whose_trigger_is_damaged_can_still_be_read() -> None:
    assert read_trigger('{"type":"manual"}') == Trigger(type="manual")
    assert read_trigger("{x") == read_trigger('{"resumes":"7"}') == Trigger()


def test_a_trigger_of_a_later_version_keeps_its_type_and_what_is_known_of_it() -> None:
    assert read_trigger('{"type":"magic","of":4,"wand":{}}') == Trigger(type="magic", of=RunId(4))
