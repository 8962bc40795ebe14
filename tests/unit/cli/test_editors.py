from __future__ import annotations

from pathlib import Path

from spyweb.reference.definitions import definitions
from tests.fakes.command import spyweb
from tests.fakes.full_disk import file_size_limit


def test_the_file_is_made_where_editors_look_for_it(tmp_path: Path) -> None:
    answer = spyweb("types", root=tmp_path)
    assert (answer.code, answer.out) == (0, f"wrote {tmp_path / 'spyweb.d.lua'}\n")
    assert (tmp_path / "spyweb.d.lua").read_text() == definitions()


def test_an_older_one_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    older, script = tmp_path / "spyweb.d.lua", tmp_path / "hello.lua"
    older.write_text("---@meta _\nold")
    script.write_text("log('hello')")

    assert spyweb("types", root=tmp_path).code == 0
    refused = spyweb("types", str(script))

    assert older.read_text() == definitions()
    assert refused.code == 2
    assert refused.err == f"spyweb: {script} is there already and is no file of types: nothing was written\n"
    assert script.read_text() == "log('hello')"


def test_where_it_is_comes_as_json_too(tmp_path: Path) -> None:
    assert spyweb("types", "-o", "json", root=tmp_path).json == {"wrote": str(tmp_path / "spyweb.d.lua")}


def test_a_place_that_can_not_be_written_to_is_one_line(tmp_path: Path) -> None:
    answer = spyweb("types", str(tmp_path / "no" / "x.lua"))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith("no/x.lua: No such file or directory\n")


def test_on_a_full_disk_an_older_one_stays_whole(tmp_path: Path) -> None:
    file = tmp_path / "spyweb.d.lua"
    file.write_text("---@meta _\nold")
    with file_size_limit(0):
        answer = spyweb("types", root=tmp_path)
    assert (answer.code, answer.err) == (2, f"spyweb: {file}: File too large\n")
    assert file.read_text() == "---@meta _\nold"
    assert list(tmp_path.iterdir()) == [file]
