"""Which files below jobs/ are jobs, and their source.  Knows names, links and rights; not what a file holds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spyweb.errors import Problem
from spyweb.jobs.parse import Place
from spyweb.model import MIB
from spyweb.settings.units import format_size

FOLDER = "jobs"
SUFFIX = ".lua"
LARGEST_SOURCE = MIB

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_BYTECODE = b"\x1bLua"
_LATER = "monitor jobs are not part of this version yet"


@dataclass(frozen=True, slots=True)
class Notes:
    """What was met on the way."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    ignored: list[Problem] = field(default_factory=list)


def find_job_files(root: Path, notes: Notes) -> Iterator[Place]:
    """Every file that wants to be a job, in the order of their names."""
    if (root / "jobs.toml").exists():
        notes.warnings.append(Problem("jobs.toml", None, None, _LATER))
    if not (root / FOLDER).exists():
        reason = f"there is no such folder in {root}; make it and drop a NAME.lua file into it"
        notes.problems.append(Problem(f"{FOLDER}/", None, None, reason))
        return
    inside = os.path.realpath(root) + os.sep
    try:
        _refuse_leaving(root / FOLDER, inside)
        entries = sorted(os.scandir(root / FOLDER), key=lambda entry: entry.name)
    except OSError as error:
        notes.problems.append(unreadable(f"{FOLDER}/", error))
        return
    for entry in entries:
        yield from _job_file(entry, inside, notes)


def read_source(root: Path, file: str) -> bytes | Problem:
    """What a Lua loader may be given: no byte order mark, and a `#!` line made a comment, so that lines keep their
    numbers."""
    try:
        source = _read(os.path.join(root, file))
    except OSError as error:
        return unreadable(file, error)
    if len(source) > LARGEST_SOURCE:
        return Problem(file, None, None, f"is larger than {format_size(LARGEST_SOURCE)}")
    if source.startswith(_BYTECODE):
        return Problem(file, 1, None, "is Lua bytecode; only source text is run")
    if source.startswith(_UTF16_BOMS):
        return Problem(file, 1, None, "is UTF-16 text; save it as UTF-8")
    source = source.removeprefix(_BOM)
    return b"--" + source if source.startswith(b"#") else source


def unreadable(file: str, error: OSError) -> Problem:
    return Problem(file, None, None, f"can't be read: {error.strerror or error}")


def _read(path: str) -> bytes:
    # O_NONBLOCK: a named pipe must not hold up the scan.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "not a regular file")
        return os.read(descriptor, min(about.st_size, LARGEST_SOURCE) + 1)
    finally:
        os.close(descriptor)


def _job_file(entry: os.DirEntry[str], inside: str, notes: Notes) -> Iterator[Place]:
    name, shown = entry.name, f"{FOLDER}/{_printable(entry.name)}"
    if name.startswith("."):
        notes.ignored.append(Problem(shown, None, None, "its name begins with a dot"))
        return
    try:
        if entry.is_symlink():
            _refuse_leaving(entry.path, inside)
        found = _folder_job(entry, inside, notes) if entry.is_dir() else _single_file(name, notes)
    except OSError as error:
        notes.problems.append(unreadable(shown, error))
        return
    if found and shown != f"{FOLDER}/{name}":
        notes.problems.append(Problem(shown, None, None, "its name is not UTF-8"))
    elif found:
        yield found


def _single_file(name: str, notes: Notes) -> Place | None:
    if not name.endswith(SUFFIX):
        notes.ignored.append(Problem(f"{FOLDER}/{_printable(name)}", None, None, "is not a .lua file"))
        return None
    stem = name.removesuffix(SUFFIX)
    return Place(file=f"{FOLDER}/{name}", folder=f"{FOLDER}/{stem}", name=stem)


def _folder_job(entry: os.DirEntry[str], inside: str, notes: Notes) -> Place | None:
    shown = f"{FOLDER}/{_printable(entry.name)}"
    held = {inner.name: inner for inner in os.scandir(entry.path)}
    script, monitor = held.get("init.lua"), held.get("config.toml")
    if script and monitor:
        notes.problems.append(
            Problem(f"{shown}/", None, None, "holds both init.lua and config.toml; a job is one or the other")
        )
    elif monitor:
        notes.warnings.append(Problem(f"{shown}/config.toml", None, None, _LATER))
    elif script:
        if script.is_symlink():
            _refuse_leaving(script.path, inside)
        folder = f"{FOLDER}/{entry.name}"
        return Place(file=f"{folder}/init.lua", folder=folder, name=entry.name)
    else:
        notes.ignored.append(Problem(f"{shown}/", None, None, "holds neither init.lua nor config.toml"))
    return None


def _refuse_leaving(path: str | Path, inside: str) -> None:
    if not os.path.realpath(path).startswith(inside):
        raise OSError(0, "a link that leaves the project")


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")
