"""Which files are jobs, and their source.  Knows names, links and rights; not what a file holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spyweb.errors import Problem, legible
from spyweb.files import open_regular
from spyweb.jobs.parse import FOLDER, Place
from spyweb.limits import PROJECT_FILE
from spyweb.settings.tables import Table, parse_table
from spyweb.settings.units import format_size

LIST = "jobs.toml"
SUFFIX = ".lua"
SCRIPT, MONITOR = "init.lua", "config.toml"
HOOK_FILES = ("hooks.lua", "defer.lua")  # of a monitor, in the order in which they are executed
EMPTY = "is empty"

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_BYTECODE = b"\x1bLua"


@dataclass(frozen=True, slots=True)
class Notes:
    """What was met on the way."""

    problems: list[Problem] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)  # what is there, and may well be a job
    warnings: list[Problem] = field(default_factory=list)
    ignored: list[Problem] = field(default_factory=list)


def find_job_files(root: Path, notes: Notes) -> Iterator[Place]:
    """Every file below jobs/ that wants to be a job, in the order of their names."""
    if not is_there(root / FOLDER):
        if not has_list(root):
            reason = f"there is no such folder in {root}; make it and drop a NAME.lua file into it"
            notes.problems.append(Problem(f"{FOLDER}/", None, None, reason))
        return
    inside = os.path.realpath(root) + os.sep
    try:
        _refuse_leaving(root / FOLDER, inside)
        entries = sorted(os.scandir(root / FOLDER), key=lambda entry: entry.name)
    except OSError as error:
        notes.refused.append(unreadable(f"{FOLDER}/", error))
        return
    for entry in entries:
        yield from _job_file(entry, inside, notes)


def has_list(root: Path) -> bool:
    return is_there(root / LIST)


def is_there(path: Path) -> bool:
    """Also where nobody may look: who reads it says so."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_source(root: Path, file: str) -> bytes | Problem:
    """What a Lua loader may be given: no byte order mark, and a `#!` line made a comment, so that lines keep their
    numbers."""
    source = _read_text(root, file)
    if isinstance(source, Problem):
        return source
    if source.startswith(_BYTECODE):
        return Problem(file, 1, None, "is Lua bytecode; only source text is run")
    return b"--" + source if source.startswith(b"#") else source


def read_list(root: Path) -> Table | Problem:
    """The jobs of one file; no table where there is no such file."""
    if not has_list(root):
        return Table(file=LIST)
    try:
        _refuse_leaving(root / LIST, os.path.realpath(root) + os.sep)
    except OSError as error:
        return unreadable(LIST, error)
    return read_toml(root, LIST)


def read_toml(root: Path, file: str) -> Table | Problem:
    source = _read_text(root, file)
    if isinstance(source, Problem):
        return source
    try:
        return parse_table(source.decode("utf-8").replace("\r\n", "\n"), file)
    except UnicodeDecodeError as error:
        return Problem(file, source.count(b"\n", 0, error.start) + 1, None, "is not UTF-8 text")


def _read_text(root: Path, file: str) -> bytes | Problem:
    """What a file holds, less a byte order mark."""
    try:
        content = _read(os.path.join(root, file))
    except OSError as error:
        return unreadable(file, error)
    if len(content) > PROJECT_FILE:
        return Problem(file, None, None, f"is larger than {format_size(PROJECT_FILE)}")
    if content.startswith(_UTF16_BOMS):
        return Problem(file, 1, None, "is UTF-16 text; save it as UTF-8")
    content = content.removeprefix(_BOM)
    # An editor, or `>`, empties a file before it writes it: that moment must not be taken for what somebody wants.
    return content if content.strip() else Problem(file, None, None, EMPTY)


def unreadable(file: str, error: OSError) -> Problem:
    return Problem(file, None, None, f"can't be read: {error.strerror or error}")


def _read(path: str) -> bytes:
    with open_regular(path) as file:
        return file.read(min(os.fstat(file.fileno()).st_size, PROJECT_FILE) + 1)


def _job_file(entry: os.DirEntry[str], inside: str, notes: Notes) -> Iterator[Place]:
    name, shown = entry.name, f"{FOLDER}/{legible(entry.name)}"
    if name.startswith("."):
        notes.ignored.append(Problem(shown, None, None, "its name begins with a dot"))
        return
    try:
        if entry.is_symlink():
            _refuse_leaving(entry.path, inside)
        found = _folder_job(entry, inside, notes) if entry.is_dir() else _single_file(name, notes)
    except OSError as error:
        notes.refused.append(unreadable(shown, error))
        return
    if found and shown != f"{FOLDER}/{name}":
        notes.problems.append(Problem(shown, None, None, "its name is not UTF-8"))
    elif found:
        yield found


def _single_file(name: str, notes: Notes) -> Place | None:
    if not name.endswith(SUFFIX):
        notes.ignored.append(Problem(f"{FOLDER}/{legible(name)}", None, None, "is not a .lua file"))
        return None
    stem = name.removesuffix(SUFFIX)
    return Place(file=f"{FOLDER}/{name}", folder=f"{FOLDER}/{stem}", name=stem)


def _folder_job(entry: os.DirEntry[str], inside: str, notes: Notes) -> Place | None:
    shown = f"{FOLDER}/{legible(entry.name)}"
    held = {inner.name: inner for inner in os.scandir(entry.path)}
    own = [held[name] for name in (SCRIPT, MONITOR) if name in held]
    if len(own) > 1:
        reason = f"holds both {SCRIPT} and {MONITOR}; a job is one or the other"
        notes.refused.append(Problem(f"{shown}/", None, None, reason))
        return None
    if not own:
        notes.ignored.append(Problem(f"{shown}/", None, None, f"holds neither {SCRIPT} nor {MONITOR}"))
        return None
    for inner in (held.get(name) for name in (SCRIPT, MONITOR, *HOOK_FILES)):
        if inner and inner.is_symlink():
            _refuse_leaving(inner.path, inside)
    return _place_in(f"{FOLDER}/{entry.name}", own[0].name, held)


def _place_in(folder: str, file: str, held: Mapping[str, object]) -> Place:
    is_monitor = file == MONITOR
    return Place(
        file=f"{folder}/{file}",
        folder=folder,
        name=folder.removeprefix(f"{FOLDER}/"),
        is_monitor=is_monitor,
        hooks=tuple(f"{folder}/{name}" for name in HOOK_FILES if name in held) if is_monitor else (),
    )


def _refuse_leaving(path: str | Path, inside: str) -> None:
    if not os.path.realpath(path).startswith(inside):
        raise OSError(0, "a link that leaves the project")
