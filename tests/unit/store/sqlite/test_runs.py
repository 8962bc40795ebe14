"""Only changes of several writes pay for a savepoint."""

from __future__ import annotations

import pytest

from spyweb.model import RunId
from spyweb.store.protocol import Begin, Change
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.runs import kind_of
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
