"""An export and an import, by the files that they write and read and by what is asked of whoever has the values."""

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
from spyweb.errors import Refused
from spyweb.store.interchange.lines import entry_line
from spyweb.store.model.entries import Entry, PortableEntry
from spyweb.subjects.state.commands import transfer
from spyweb.subjects.state.commands.options import StatePlace
from spyweb.subjects.state.commands.stored import StoredState
from spyweb.subjects.state.commands.transfer import PIPE, export, load, read, read_lines
from spyweb.subjects.state.views import Imported

EARLIER = b"what was there before"


def item(key: bytes, value: int = 1) -> PortableEntry:
    entry = Entry(value=value, version=1, created_ms=1000, updated_ms=1000, expires_ms=None)
    return PortableEntry(namespace="state", key=key, entry=entry)


ITEMS = [item(b"a"), item(b"b", 2)]


class FakeState:
    """A daemon or a database with these entries; `story` is what was asked of it."""

    def __init__(self, items: Sequence[PortableEntry] = (), *, replaces: int = 0) -> None:
        self.items = items
        self.story: list[str] = []
        self.error: Exception | None = None
        self._replaces = replaces

    def stats(self, _namespace: str | None) -> SimpleNamespace:
        return SimpleNamespace(total_keys=len(self.items))

    def export(self, namespace: str | None, write: Callable[[PortableEntry], None]) -> None:
        self.story.append(f"export {namespace or 'everything'}")
        for each in self.items:
            write(each)
        if self.error:
            raise self.error

    def load(self, items: Sequence[PortableEntry], *, dry_run: bool, each: Callable[[PortableEntry], None]) -> Imported:
        self.story.append(f"{'plan' if dry_run else 'load'} {len(items)}")
        for one in items:
            each(one)
        return Imported(added=len(items) - self._replaces, replaced=self._replaces, expired=0)


@pytest.fixture
def state() -> FakeState:
    return FakeState(ITEMS)


def write_export(state: FakeState, file: str | Path, form: Format = Format.TABLE, namespace: str | None = None) -> None:
    place = SimpleNamespace(chosen=namespace, state=lambda: state)
    inspect.unwrap(export)(None, cast(StatePlace, place), str(file), form)


def take_in(state: FakeState, *, dry_run: bool = False, yes: bool = False) -> Imported | None:
    return load(cast(StoredState, state), ITEMS, dry_run=dry_run, yes=yes)


def answer(monkeypatch: pytest.MonkeyPatch, yes: bool) -> list[str]:
    """Have every question answered so; return them."""
    asked: list[str] = []

    def agree(question: str, *, yes: bool, says: bool = yes) -> bool:
        asked.append(question)
        return yes or says

    monkeypatch.setattr(transfer, "agree", agree)
    return asked


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

    write_export(state, file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


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


def test_an_import_reads_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(b"".join(map(entry_line, ITEMS))))
    assert read(PIPE, None, "local", 0) == (ITEMS, 0)


def test_a_bad_line_of_a_pipe_is_one_of_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(b"["))
    with pytest.raises(Refused, match=r"^stdin:1: "):
        read(PIPE, None, "local", 0)


# Into the store


def test_a_no_leaves_everything_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    state = FakeState(replaces=1)
    answer(monkeypatch, yes=False)

    assert take_in(state) is None
    assert state.story == ["plan 2"]


# What is told
