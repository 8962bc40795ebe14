"""The files that pages need."""

from __future__ import annotations

import re
from pathlib import Path

from spyweb.web.pages.static_files import FOLDER, StaticFiles


def test_another_content_has_another_version(tmp_path: Path) -> None:
    (tmp_path / "style.css").write_text("a {}")
    (tmp_path / "notes.txt").write_text("not served")
    first = StaticFiles.load(tmp_path)
    (tmp_path / "style.css").write_text("b {}")
    second = StaticFiles.load(tmp_path)
    assert first.version != second.version
    assert first.files["style.css"].tag != second.files["style.css"].tag
    assert first.find("notes.txt") is None
    assert first.find("../style.css") is None


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.\w+/|@import|url\(|\beval\b|innerHTML\s*=\s*`", text), path.name
