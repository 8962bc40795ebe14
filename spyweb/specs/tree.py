"""Find the files that are jobs, and read them.  Knows names, links and rights, not what a file means."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct, field

from spyweb.errors import Problem, legible
from spyweb.settings.tables import TomlTable, decode_table, read_text, unreadable
from spyweb.specs.parse import FOLDER, JobPlace

LIST = "jobs.toml"
SUFFIX = ".lua"
SUFFIXES = (SUFFIX, ".sloth")  # of scripts
SETTINGS = ".toml"  # of a check
SCRIPT, MONITOR = "init.lua", "config.toml"
HOOK_FILES = ("hooks.lua", "defer.lua")  # of a monitor, in the order in which they are executed
EMPTY = "is empty"
LEAVES = "a link that leaves the project"

_BYTECODE = b"\x1bLua"
_NEARLY_SETTINGS = (
    *("config.yaml", "config.yml", "config.json", "config.ini"),
    *("settings.toml", "job.toml", "monitor.toml"),
)


class Notes(Struct, frozen=True):
    """Problems and doubts met while the files were looked for."""

    problems: list[Problem] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)  # found, and possibly a job
    warnings: list[Problem] = field(default_factory=list)


def find_job_files(root: Path, notes: Notes, *, has_others: bool = False) -> Iterator[JobPlace]:
    """Yield the files below jobs/ that are meant to be jobs, by name; without other jobs the folder has to be there."""
    if not is_there(root / FOLDER):
        if not is_there(root / LIST) and not has_others:
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


def is_there(path: Path) -> bool:
    """Return whether there is a file, also one that may not be read: reading it tells why."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_source(root: Path, file: str) -> bytes | Problem:
    """Return a file as a Lua loader takes it: without byte order mark, with a `#!` line made a comment."""
    source = _read_whole(root, file)
    if isinstance(source, Problem):
        return source
    if source.startswith(_BYTECODE):
        return Problem(file, 1, None, "is Lua bytecode; only source text is run")
    return b"--" + source if source.startswith(b"#") else source


def read_list(root: Path) -> TomlTable | Problem:
    """Return the jobs of one file, or an empty table where there is no such file."""
    return find_leaving(root, LIST) or read_toml(root, LIST) if is_there(root / LIST) else TomlTable(file=LIST)


def read_toml(root: Path, file: str) -> TomlTable | Problem:
    source = _read_whole(root, file)
    return source if isinstance(source, Problem) else decode_table(source, file)


def _read_whole(root: Path, file: str) -> bytes | Problem:
    """Return the text of a file; an editor, or `>`, empties one before it writes it: nobody means that moment."""
    source = read_text(root, file)
    return source if isinstance(source, Problem) or source.strip() else Problem(file, None, None, EMPTY)


def _job_file(entry: os.DirEntry[str], inside: str, notes: Notes) -> Iterator[JobPlace]:
    name, shown = entry.name, f"{FOLDER}/{legible(entry.name)}"
    if name.startswith("."):
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


def _single_file(name: str, notes: Notes) -> JobPlace | None:
    if name.endswith(SETTINGS) and name.lower() not in (MONITOR, *_NEARLY_SETTINGS):
        stem = name.removesuffix(SETTINGS)
        return JobPlace(file=f"{FOLDER}/{name}", folder=f"{FOLDER}/{stem}", name=stem)
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        _note_no_job(f"{FOLDER}/{legible(name)}", _meant_file(name), notes)
        return None
    stem = name.removesuffix(suffix)
    return JobPlace(file=f"{FOLDER}/{name}", folder=f"{FOLDER}/{stem}", name=stem, is_script=True)


def _folder_job(entry: os.DirEntry[str], inside: str, notes: Notes) -> JobPlace | None:
    shown = f"{FOLDER}/{legible(entry.name)}"
    held = {inner.name: inner for inner in os.scandir(entry.path)}
    own = [held[name] for name in (SCRIPT, MONITOR) if name in held]
    if len(own) > 1:
        reason = f"holds both {SCRIPT} and {MONITOR}; a job is one or the other"
        notes.refused.append(Problem(f"{shown}/", None, None, reason))
        return None
    if not own:
        is_of_job = any(is_there(Path(f"{entry.path}{suffix}")) for suffix in (*SUFFIXES, SETTINGS))
        meant = "" if is_of_job else _meant_folder(entry.name, held)
        _note_no_job(f"{shown}/", meant, notes)
        return None
    for inner in (held.get(name) for name in (SCRIPT, MONITOR, *HOOK_FILES)):
        if inner and inner.is_symlink():
            _refuse_leaving(inner.path, inside)
    folder, is_monitor = f"{FOLDER}/{entry.name}", own[0].name == MONITOR
    return JobPlace(
        file=f"{folder}/{own[0].name}",
        folder=folder,
        name=entry.name,
        is_monitor=is_monitor,
        is_script=not is_monitor,
        hooks=tuple(f"{folder}/{name}" for name in HOOK_FILES if name in held) if is_monitor else (),
    )


def _note_no_job(file: str, meant: str, notes: Notes) -> None:
    """Warn of a file that is no job and seems to have been meant as one."""
    if meant:
        notes.warnings.append(Problem(file, None, None, f"is no job: {meant}", is_warning=True))


def _meant_file(name: str) -> str:
    """Name the expected file in place of one that resembles a job; nothing for any other file."""
    stem, _, ending = name.rpartition(".")
    lowered = name.lower()
    if lowered == MONITOR:
        return f"a monitor's settings are in {FOLDER}/NAME/{MONITOR}"
    if lowered.endswith((SUFFIX, f"{SUFFIX}.txt", ".luau", ".sloth")):
        stem = name[: lowered.rindex(".", 0, -4 if lowered.endswith(".txt") else None)]
        return f"a script's name ends in {SUFFIX}; expected {FOLDER}/{legible(stem)}{SUFFIX}"
    if ending.lower() in ("toml", "tml"):
        return f"expected {FOLDER}/{legible(stem)}/{MONITOR}, or {LIST} beside {FOLDER}/"
    return ""


def _meant_folder(folder: str, held: Collection[str]) -> str:
    """Name the expected file in a folder that resembles a job's; nothing for any other folder."""
    for name in sorted(held):
        if name.lower() in _NEARLY_SETTINGS or get_close_matches(name.lower()[:80], [MONITOR], cutoff=0.85):
            return f"holds {legible(name)}; a monitor's settings are in {MONITOR}"
    hooks = next((name for name in HOOK_FILES if name in held), None)
    if hooks:
        return f"holds {hooks} but no {MONITOR}, without which it is no monitor"
    scripts = sorted(name for name in held if name.lower().endswith((SUFFIX, ".luau", ".sloth")))
    likely = next((name for name in scripts if name.lower().startswith((f"{folder.lower()}.", "main.", "init."))), None)
    if likely or scripts:
        return f"holds {legible(likely or scripts[0])}; expected {SCRIPT}, or {FOLDER}/NAME{SUFFIX}"
    return ""


def find_leaving(root: Path, file: str) -> Problem | None:
    """Return the problem of a file that is a link out of the project."""
    is_inside = os.path.realpath(root / file).startswith(os.path.realpath(root) + os.sep)
    return None if is_inside else unreadable(file, OSError(0, LEAVES))


def _refuse_leaving(path: str | Path, inside: str) -> None:
    if not os.path.realpath(path).startswith(inside):
        raise OSError(0, LEAVES)
