"""Commands about stored values: what is typed, what is shown, and the files of an export and an import."""

from __future__ import annotations

import inspect
import io
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from spyweb.cli.output import Format
from spyweb.cli.project import Project
from spyweb.errors import Refused
from spyweb.model import NULL, ChangeKind, JobId, Value
from spyweb.store.interchange.lines import entry_line
from spyweb.store.interchange.value_json import TypeName
from spyweb.store.model.entries import Entry, PortableEntry
from spyweb.subjects.state.commands import entries
from spyweb.subjects.state.commands.stored import StatePlace
from spyweb.subjects.state.commands.transfer import PIPE, export, read_lines
from spyweb.subjects.state.views import ChangeView, view_entry
from spyweb.words import describe_moment
from tests.fakes.clock import FakeClock

TEXTS = [
    ("5", 5), ("5.0", 5), ("-0.5", -0.5), ("true", True), ("null", NULL), ('"5"', b"5"), ('{"a": [1]}', {b"a": [1]}),
    ('{"$base64": "/w=="}', b"\xff"), ("[]", []), ("hello", b"hello"), ("v1.2.3", b"v1.2.3"), ("{broken", b"{broken"),
    ('{"$base64": "%"}', b'{"$base64": "%"}'), ("NaN", b"NaN"), ("", b""), ("gr\xf6\xdfe", "gr\xf6\xdfe".encode()),
    ("\udcff", b"\xff"), ("[" * 500, b"[" * 500),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), TEXTS)
def test_a_value_is_json_if_it_parses_else_text(text: str, value: Value) -> None:
    parsed = entries.parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("text", "ms"), [("", None), ("0", None), ("90", 90_000), ("0.5", 500), ("1h30m", 5_400_000)])
def test_a_ttl_is_seconds_or_a_duration_and_nothing_is_for_ever(text: str, ms: int | None) -> None:
    assert entries.parse_ttl(text) == ms


@pytest.mark.parametrize("text", ["-1", "soon", "1x", "nan"])
def test_any_other_ttl_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"^--ttl: "):
        entries.parse_ttl(text)


NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PROJECT = cast(Project, SimpleNamespace(clock=FakeClock(), moment=lambda ms: describe_moment(ms, "Europe/Berlin")))


def change(kind: ChangeKind, old: object, new: object, job: str | None = None) -> ChangeView:
    return ChangeView(
        namespace="state",
        key="n",
        kind=kind,
        old=old,
        new=new,
        version=1,
        at_ms=NOW_MS,
        job=None if job is None else JobId(job),
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 49 + "…"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\n" * 30, "\\n" * 24 + "\\…"),
    ],
)
def test_a_value_in_a_list_is_one_line_of_50_characters_at_most(text: str, shown: str) -> None:
    assert entries.brief(text) == shown
    assert len(entries.brief(text)) <= entries.WIDEST


LIVES = [
    (None, "-"), (1, "1s"), (1_000, "1s"), (1_001, "2s"), (3_599_500, "1h"), (3_600_001, "1h1m"),
    (90 * 86_400_000, "90d"), (-5, "1s"),
]  # fmt: skip


@pytest.mark.parametrize(("left_ms", "shown"), LIVES)
def test_how_long_an_entry_lives_is_rounded_up(left_ms: int | None, shown: str) -> None:
    assert entries.ttl(None if left_ms is None else NOW_MS + left_ms, NOW_MS) == shown


def test_an_entry_is_shown_with_labels_and_its_whole_value() -> None:
    entry = Entry(value=b"v\n" * 40, version=7, created_ms=NOW_MS, updated_ms=NOW_MS + 1_500, expires_ms=None)
    assert entries.entry_fields(view_entry("state", b"k\xff", entry), NOW_MS, "UTC") == [
        ("Key:", "k\\xff"),
        ("Value:", "v\n" * 40),
        ("Type:", "string"),
        ("Created:", "Thu 2026-01-01 00:00:00 UTC"),
        ("Updated:", "Thu 2026-01-01 00:00:01 UTC"),
        ("TTL:", "-"),
        ("Version:", "7"),
    ]


def test_a_key_of_several_lines_is_shown_in_one() -> None:
    entry = Entry(value=b"v", version=1, created_ms=0, updated_ms=0, expires_ms=None)
    view = view_entry("state", b"a\nb\t\xff", entry)
    assert entries.entry_row(PROJECT, view)["key"] == "a\\nb\\t\\xff"
    assert entries.entry_fields(view, 0, "UTC")[0] == ("Key:", "a\\nb\\t\\xff")


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        ("5", TypeName.STRING, "5"),
        ({"$base64": "/w=="}, TypeName.STRING, "\\xff"),
        ({"$base64": "/w=="}, TypeName.TABLE, '{"$base64":"/w=="}'),
        (None, TypeName.NULL, "null"),
        (True, TypeName.BOOLEAN, "true"),
    ],
)
def test_a_string_is_shown_as_it_is_and_all_else_as_json(value: object, kind: TypeName, shown: str) -> None:
    assert entries.shown_value(value, kind) == shown


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (change(ChangeKind.CREATED, None, 5, "tick"), "created state n  5  by tick"),
        (change(ChangeKind.UPDATED, "a", {"b": 1}), 'updated state n  a -> {"b":1}'),
        (change(ChangeKind.DELETED, [1], None), "deleted state n  was [1]"),
        (change(ChangeKind.EXPIRED, 5, None), "expired state n  was 5"),
        (change(ChangeKind.UPDATED, "x" * 60, 1), f"updated state n  {'x' * 49}… -> 1"),
    ],
)
def test_a_change_is_one_line(seen: ChangeView, line: str) -> None:
    assert entries.change_line(seen) == line


EARLIER = b"what was there before"


def item(key: bytes, value: int = 1) -> PortableEntry:
    entry = Entry(value=value, version=1, created_ms=1000, updated_ms=1000, expires_ms=None)
    return PortableEntry(namespace="state", key=key, entry=entry)


ITEMS = [item(b"a"), item(b"b", 2)]


class FakeState:
    """A daemon or a database with these entries."""

    def __init__(self, items: Sequence[PortableEntry] = ()) -> None:
        self.items = items
        self.error: Exception | None = None

    def stats(self, _namespace: str | None) -> SimpleNamespace:
        return SimpleNamespace(total_keys=len(self.items))

    def export(self, namespace: str | None, write: Callable[[PortableEntry], None]) -> None:
        for each in self.items:
            write(each)
        if self.error:
            raise self.error


@pytest.fixture
def state() -> FakeState:
    return FakeState(ITEMS)


def write_export(state: FakeState, file: str | Path, form: Format = Format.TABLE, namespace: str | None = None) -> None:
    place = SimpleNamespace(chosen=namespace, state=lambda: state)
    inspect.unwrap(export)(None, cast(StatePlace, place), str(file), form)


class Piped(io.BytesIO):
    """stdin or stdout in a pipe."""

    @property
    def buffer(self) -> io.BytesIO:
        return self


# To a file


def test_an_export_is_for_its_owners_eyes_whatever_was_there(state: FakeState, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_bytes(EARLIER)
    file.chmod(0o644)
    file.with_name("out.jsonl.unfinished").symlink_to(tmp_path / "theirs")

    write_export(state, file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not (tmp_path / "theirs").exists()


def test_an_export_that_fails_leaves_the_earlier_one_and_nothing_unfinished(state: FakeState, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_bytes(EARLIER)
    state.error = Refused("the daemon has gone")

    with pytest.raises(Refused, match="the daemon has gone"):
        write_export(state, file)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out.jsonl", EARLIER)]


def test_an_export_to_a_link_goes_where_the_link_leads(state: FakeState, tmp_path: Path) -> None:
    link, file = tmp_path / "latest", tmp_path / "monday.jsonl"
    link.symlink_to(file)

    write_export(state, link)

    assert link.is_symlink()
    assert read_lines(str(file)) == ITEMS


def test_what_is_no_plain_file_is_written_to_and_stays_what_it_is(state: FakeState, tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reading = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reading.start()

    write_export(state, pipe)
    reading.join(10)

    assert got == [b"".join(map(entry_line, ITEMS))]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_that_can_not_be_written_is_named(state: FakeState, tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "out.jsonl"
    with pytest.raises(Refused) as refused:
        write_export(state, file)
    assert str(refused.value) == f"{file}: No such file or directory"


def test_a_pipe_gets_the_entries_alone_and_the_remark_goes_to_stderr(
    state: FakeState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Piped()
    monkeypatch.setattr(sys, "stdout", out)

    write_export(state, PIPE)

    assert out.getvalue() == b"".join(map(entry_line, ITEMS))
    assert capsys.readouterr().err.endswith("2 entries exported\n")


# From a file


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = str(tmp_path / "in.jsonl")
    with pytest.raises(Refused) as refused:
        read_lines(file)
    assert str(refused.value) == f"{file}: No such file or directory"


def test_an_import_reads_a_pipe_and_a_bad_line_of_it_is_one_of_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(b"".join(map(entry_line, ITEMS))))
    assert read_lines(PIPE) == ITEMS
    monkeypatch.setattr(sys, "stdin", Piped(b"["))
    with pytest.raises(Refused, match=r"^stdin:1: "):
        read_lines(PIPE)
