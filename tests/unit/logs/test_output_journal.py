from __future__ import annotations

import io
import os
from pathlib import Path

from spyweb.logs.output import is_journal, with_priority


def test_a_stream_is_the_journal_where_systemd_says_that_it_is(tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w") as stream, (tmp_path / "other").open("w") as other:
        found = os.fstat(stream.fileno())
        environment = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert is_journal(stream, environment)
        assert not is_journal(other, environment)
        assert not is_journal(stream, {})
    assert not is_journal(stream, environment), "it is closed"
    assert not is_journal(io.StringIO(), environment)


def test_every_line_has_its_priority() -> None:
    assert with_priority("one\n  two", "warning") == "<4>one\n<4>  two"
    assert with_priority("fine", "info") == "<6>fine"
    assert with_priority("odd", "exception") == "<6>odd"
