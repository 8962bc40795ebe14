"""What is no file is refused at once, whatever it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.files import open_regular


def test_a_file_is_opened_to_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text")

    with open_regular(tmp_path / "a") as file:
        assert file.read() == b"text"


@pytest.mark.parametrize(("make", "words"), [(Path.mkdir, "Is a directory"), (os.mkfifo, "not a regular file")])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, make: object, words: str) -> None:
    assert callable(make)
    make(tmp_path / "a")

    with pytest.raises(OSError, match=words):
        open_regular(tmp_path / "a")
