"""The only place that prints."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from spyweb.cli import output
from spyweb.errors import Refused

HEADER = ("job", "state", "note")
ROWS = [("prices", "running", ""), ("backup", "failed", "a very long note " * 20)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest sets stdout anew between a test's fixtures and the test."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return terminal


def test_a_table_in_a_pipe_is_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(HEADER, ROWS, empty="nothing")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "job     state    note"
    assert lines[1] == "prices  running"
    assert lines[2] == "backup  failed   " + ("a very long note " * 20).strip()


def test_a_table_on_a_terminal_has_colours_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(HEADER, ROWS, empty="nothing")
    text = terminal.getvalue()
    assert "\x1b[31mfailed" in text
    assert "\x1b[36mrunning" in text
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in text.splitlines()) <= 60


def test_on_a_narrow_terminal_the_column_that_may_be_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(HEADER, ROWS, empty="nothing", cut="note")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert [len(line.rstrip()) for line in lines] == [len("job     state    note"), len("prices  running"), 60]
    assert lines[2].endswith("...")


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    output.show_table(HEADER, ROWS, empty="nothing")
    output.show_verdict("failed", "jobs")
    assert "\x1b[3" not in terminal.getvalue()


def test_a_table_without_rows_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(HEADER, [], empty="nothing is here")
    assert capsys.readouterr() == ("", "nothing is here\n")


def test_a_cell_of_several_lines_stays_one_row_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(("a", "b"), [("x\ny", "z")], empty="")
    assert capsys.readouterr().out == "a    b\nx y  z\n"


@pytest.mark.parametrize("evil", ["\x1b]0;pwned\x07", "\x9b31m", "a\rb", "\x1b[2J"])
def test_nothing_that_a_script_says_controls_the_terminal(monkeypatch: pytest.MonkeyPatch, evil: str) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(("a",), [(evil,)], empty="")
    output.say(evil)
    output.show_log_line("12:00", "info", evil)
    output.show_verdict("ok", evil)
    text = terminal.getvalue()
    assert evil not in text
    assert text.count("\\x") >= 4


def test_markup_in_a_cell_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(("a",), [("[red]x[/red]",)], empty="")
    assert "[red]x[/red]" in terminal.getvalue()


def test_json_is_for_people_and_machines_alike(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_json({"a": [1, "ü"]})
    assert capsys.readouterr().out == '{\n  "a": [\n    1,\n    "ü"\n  ]\n}\n'


def test_an_error_of_many_lines_is_told_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    output.report(Refused("one\ntwo"))
    assert capsys.readouterr() == ("", "spyweb: one two\n")


def test_what_the_terminal_can_not_show_is_spelt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = tmp_path / "shown"
    with shown.open("w", encoding="ascii") as ascii_only:
        monkeypatch.setattr(sys, "stdout", ascii_only)
        monkeypatch.setattr(sys, "stderr", ascii_only)
        output.prepare()
        output.say("grün")
    assert shown.read_bytes() == b"gr\\xfcn\n"
