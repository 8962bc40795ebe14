"""Compare files with the recorded resources: no Lua runs and no command.

A file is read as `file.*` reads it, so no link leads out of the folders that the job may use.  What differs is what
the job would change if it ran again: a mode counts where the script has given one, of a file that it keeps a line in
only that line.  Everything here waits for the disk: call it in a thread.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress

from spyweb.files import Forbidden
from spyweb.model import JobSpec
from spyweb.ops.files.files import LARGEST_TEXT, Files
from spyweb.ops.files.names import FilePlace, find_place, reason_of
from spyweb.ops.resources import Expected, Kept
from spyweb.ops.rules.values import shown
from spyweb.permissions.policy import SHARED, Refusal

SHOWN = 12  # characters of a checksum
NOT_THERE = "not there"


def place_in(spec: JobSpec, top: str, target: str) -> FilePlace:
    """Return the place that a job's target names.  Raises Forbidden for one that it may not use any more."""

    def root_of(path: str) -> str:
        root = spec.policy.path(path)
        if isinstance(root, Refusal):
            raise Forbidden(f"it may not {root.deed} any more")
        return root

    def permit(folder: str) -> None:
        refusal = spec.policy.folder(folder)
        if refusal is not None:
            raise Forbidden(f"it may not {refusal.deed} any more")

    try:
        return find_place(target.encode(), top, spec.folder, root_of=root_of, permit=permit)
    except Forbidden as error:
        raise Forbidden(f"not checked: {error}") from None


def path_in(spec: JobSpec, top: str, target: str) -> str:
    """Return the absolute path that a target names, without reading it."""
    if target.startswith("/"):
        return os.path.normpath(target)
    first, _, rest = target.partition("/")
    return os.path.normpath(
        os.path.join(top, SHARED, rest) if first == SHARED and rest else f"{top}/{spec.folder}/{target}"
    )


def describe_expected(kept: Kept) -> str:
    match kept.expected:
        case Expected.FILE | Expected.FOLDER:
            return " ".join(filter(None, (kept.expected, kept.checksum[:SHOWN], _octal(kept.mode))))
        case Expected.LINE | Expected.NO_LINE:
            return f"{kept.expected} '{shown(kept.line)}'" if kept.line is not None else f"file {kept.checksum[:SHOWN]}"
        case Expected.ABSENT:
            return NOT_THERE
        case Expected.MADE:
            return "there"
        case Expected.COMMAND:
            return ""


def find_difference(files: Files, spec: JobSpec, kept: Kept) -> str | None:
    """Return the state of a resource that differs from the recorded one; None where they are equal."""
    if kept.expected is Expected.COMMAND:
        return None
    try:
        if kept.expected is Expected.MADE:
            if not spec.policy.may_exec:
                return "not checked: it may not run commands any more"
            return None if os.path.lexists(path_in(spec, files.top, kept.target)) else NOT_THERE
        return _difference_at(files, place_in(spec, files.top, kept.target), kept)
    except Forbidden as error:
        return str(error)
    except OSError as error:
        return f"it can't be read: {reason_of(error)}"


def _difference_at(files: Files, place: FilePlace, kept: Kept) -> str | None:
    match kept.expected:
        case Expected.FILE:
            found = files.stat(place)
            mode = _octal(kept.mode) or found.get("mode")
            is_same = (found.get("checksum"), found.get("mode")) == (kept.checksum, mode)
            return None if is_same else _described(found)
        case Expected.FOLDER:
            with suppress(NotADirectoryError):
                if not files.mkdir(place, kept.mode, check=True).changed:
                    return None
        case Expected.ABSENT:
            if not files.remove(place, check=True).changed:
                return None
        case _:
            return _difference_of_line(files, place, kept)
    return _described(files.stat(place, hashed=False))


def _difference_of_line(files: Files, place: FilePlace, kept: Kept) -> str | None:
    """Look for the line; for the whole content where an expression alone says what must not be there."""
    wanted = kept.expected is Expected.LINE
    try:
        content = files.read(place, LARGEST_TEXT)
    except (FileNotFoundError, NotADirectoryError):
        return NOT_THERE if wanted else None
    if kept.line is None:
        checksum = hashlib.sha256(content).hexdigest()
        return None if checksum == kept.checksum else f"file {checksum[:SHOWN]}"
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()  # what follows the last line's end is no line
    has_line = any(line.removesuffix(b"\r") == kept.line for line in lines)
    return None if has_line is wanted else f"{'no line' if wanted else 'line'} '{shown(kept.line)}'"


def _described(found: Mapping[str, object]) -> str:
    """Describe the state of a place: `file 9c0d12ab34cd 0644`."""
    if not found["exists"]:
        return NOT_THERE
    checksum = found.get("checksum")
    size = f"of {found['size']} bytes" if found["type"] == "file" and not checksum else ""
    return " ".join(filter(None, (str(found["type"]), str(checksum or "")[:SHOWN], size, str(found["mode"]))))


def _octal(mode: int | None) -> str:
    return "" if mode is None else f"{mode:04o}"
