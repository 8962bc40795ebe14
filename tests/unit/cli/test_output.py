"""The only place that prints."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from spyweb.cli import output
from spyweb.errors import Refused
from tests.fakes.terminal import Terminal, open_terminal, shown_lines

HEADER = ("job", "state", "note")
ROWS = [("prices", "running", ""), ("backup", "failed", "a very long note " * 20)]


def test_a_table_in_a_pipe_is_aligned_and_only_long_sentences_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(HEADER, [*ROWS, ("x" * 200, "idle", "")], empty="nothing", cut=("note", "job"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == [["job", "state", "note"], ["prices", "running"]]
    assert " ".join(lines[2][2:]) == ("a very long note " * 20)[:99] + "…"
    assert lines[3] == ["x" * 200, "idle"]


@pytest.mark.parametrize(
    ("header", "rows", "shown"),
    [
        (("job", "why"), [("prices", "x" * 500)], ("job     why\nprices  " + "x" * 500 + "\n", "")),
        (("a", "b"), [("x\ny", "z")], ("a    b\nx y  z\n", "")),
        (HEADER, [], ("", "nothing\n")),
    ],
)
def test_in_a_pipe_every_column_is_there_and_each_row_is_a_line(
    capsys: pytest.CaptureFixture[str], header: Sequence[str], rows: Sequence[Sequence[str]], shown: tuple[str, str]
) -> None:
    output.show_table(header, rows, empty="nothing", cut=header[:1], spare=header[1:])
    assert capsys.readouterr() == shown


def test_a_table_on_a_terminal_has_colours_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(HEADER, ROWS, empty="nothing")
    text = terminal.getvalue()
    assert "\x1b[31mfailed" in text
    assert "\x1b[36mrunning" in text
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in text.splitlines()) <= 60


def test_on_a_narrow_terminal_the_column_that_may_be_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(HEADER, ROWS, empty="nothing", cut=("note",))
    lines = shown_lines(terminal)
    assert [len(line) for line in lines] == [len("job     state    note"), len("prices  running"), 60]
    assert lines[2].endswith("…")


def test_where_not_all_fits_cells_are_folded_and_no_column_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    header = ("id", "message of", "sent to", "next attempt", "error")
    output.show_table(header, [["12", *("x" * 16 for _ in header[1:])]], empty="", cut=("error",))
    text = " ".join(shown_lines(terminal))
    assert set(text.split()) >= set(" ".join(header).split())
    assert text.count("x") > 3 * 16


def test_what_is_printed_below_a_bar_goes_where_the_output_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with output.meter("testing"):
        output.say("ok")
    assert capsys.readouterr().out == "ok\n"


def test_a_cell_that_may_be_cut_stays_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(("a", "b"), [("x", "one\r\ntwo\tthree")], empty="", cut=("b",))
    assert shown_lines(terminal)[1] == "x  one two three"


@pytest.mark.parametrize(
    ("columns", "header"),
    [(30, "job state"), (40, "job state took"), (60, "job state took why"), (200, "job state took why")],
)
def test_a_spare_column_is_there_where_all_others_have_room(
    monkeypatch: pytest.MonkeyPatch, columns: int, header: str
) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [("prices" * 3, "failed", "1.234s", "what it is for " * 8)]
    output.show_table(("job", "state", "took", "why"), rows, empty="", spare=("why", "took"))
    lines = shown_lines(terminal)
    assert lines[0].split() == header.split()
    assert max(map(len, lines)) <= columns
    assert len(lines) == 2


def test_letters_that_take_two_columns_are_counted_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(("a", "b"), [("日本語" * 30, "x" * 20)], empty="", cut=("a",))
    _, row = shown_lines(terminal)
    assert row == "日本語" * 6 + " …  " + "x" * 20


def test_a_moment_of_a_row_is_as_short_as_it_can_be_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    assert output.row_moment(now_ms - 1_000, "Europe/Berlin", now_ms) == "Thu 2026-01-01 00:59:59 CET"
    open_terminal(monkeypatch)
    assert output.row_moment(now_ms - 1_000, "Europe/Berlin", now_ms) == "00:59:59"
    assert output.row_moment(now_ms - 1_000, "UTC", now_ms) == "2025-12-31 23:59:59"
    assert output.row_moment(now_ms + 86_400_000, "UTC", now_ms) == "01-02 00:00:00"


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    output.show_table(HEADER, ROWS, empty="nothing")
    output.show_verdict("failed", "jobs")
    assert "\x1b[3" not in terminal.getvalue()


@pytest.mark.parametrize("evil", ["\x1b]0;pwned\x07", "\x9b31m", "a\rb", "\x1b[2J"])
def test_nothing_that_a_script_says_controls_the_terminal(monkeypatch: pytest.MonkeyPatch, evil: str) -> None:
    terminal = open_terminal(monkeypatch)
    output.show_table(("a",), [(evil,), ("[red]x[/red]",)], empty="")
    output.say(evil)
    output.show_log_line("12:00", "info", evil)
    output.show_verdict("ok", evil)
    text = terminal.getvalue()
    assert evil not in text
    assert "[red]x[/red]" in text
    assert text.count("\\x") >= 4


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
