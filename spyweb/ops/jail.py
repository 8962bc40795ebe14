"""Find and open the folder that a job's file name leads to, so that no name or link leads out of it.

A name is checked as text before any file is touched.  A path is then opened step by step from the project root, each
step without following links.  Links that stay inside are resolved first; one that leads out is refused, and one that is
put there in between is an error.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from spyweb.logs.job import NAME as LOG_NAME
from spyweb.ops.rules.values import shown

SHARED = "shared"  # the folder of all jobs below the project root, and the first step of names in it
TEXT_KINDS = frozenset({"csv", "json", "jsonl", "txt", "log"})
BINARY_KINDS = TEXT_KINDS | frozenset(
    {"png", "jpg", "jpeg", "gif", "svg", "webp", "bmp", "ico", "woff", "woff2", "ttf", "otf", "pdf", "zip"}
)
LONGEST_STEP = 255  # bytes, the limit of the usual file systems
LONGEST_STEM = 200  # bytes of a file's name, which leaves room for a time stamp
MOST_STEPS = 32
LOADED = ("config.toml", "jobs.toml", LOG_NAME)  # names that are spyweb's own, and never written
LOADED_ENDINGS = (".lua", ".sloth")
PUT_THERE = "a link was put there"

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Forbidden(Exception):
    """A name is refused; the text says why."""


class FilePlace(Struct, frozen=True):
    """A folder of the project and the steps from there that a name spells; the last step is the file."""

    folder: str  # relative to the project root
    steps: tuple[str, ...]


class OpenFilePlace(Struct, frozen=True):
    """A file name in an open folder."""

    folder: int  # its descriptor
    name: str
    path: str  # the whole path, resolved, so that two names of one file have the same


def places_of(folder: str, name: bytes, kinds: frozenset[str]) -> tuple[FilePlace, FilePlace]:
    """Return the place that a name is written to, and where else it is looked for; both may be the shared folder.

    Raises Forbidden.
    """
    steps = steps_of(name)
    _check_kind(steps[-1], kinds)
    if steps[0] == SHARED and len(steps) > 1:
        shared = FilePlace(SHARED, steps[1:])
        return shared, shared
    return FilePlace(folder, steps), FilePlace(SHARED, steps)


def steps_of(name: bytes) -> tuple[str, ...]:
    """Return the folders and the file in a name, none of which leads up.  Raises Forbidden."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise Forbidden("a file's name must be UTF-8") from None
    if not text.isprintable():
        raise Forbidden("control characters are not allowed in it")
    if text.startswith(("/", "\\")) or text[1:2] == ":":
        raise Forbidden("an absolute path is not allowed")
    if ".." in text.replace("\\", "/").split("/"):
        raise Forbidden("'..' is not allowed in it")
    if "\\" in text:
        raise Forbidden("'\\' is not allowed in it: folders are separated by '/'")
    return _checked_lengths(tuple(step for step in text.split("/") if step not in ("", ".")), text)


def check_names(steps: Sequence[str]) -> None:
    """Raise Forbidden where spyweb would take a step for a file of its own.

    A folder of such a name is as bad: the jobs around it do not load any more.
    """
    if any(name.lower() in LOADED or name.lower().endswith(LOADED_ENDINGS) for name in steps):
        raise Forbidden("spyweb itself loads, or writes, files of this name")


def _checked_lengths(steps: tuple[str, ...], text: str) -> tuple[str, ...]:
    if not steps or text.endswith(("/", "/.")):
        raise Forbidden("the name of a file expected")
    longest = max(len(step.encode()) for step in steps)
    if len(steps) > MOST_STEPS or longest > LONGEST_STEP or len(steps[-1].encode()) > LONGEST_STEM:
        raise Forbidden(
            f"it is too long: at most {MOST_STEPS} steps, and a file's name of {LONGEST_STEM} bytes expected"
        )
    return steps


def _check_kind(name: str, kinds: frozenset[str]) -> None:
    stem, dot, kind = name.rpartition(".")
    if not stem or not dot or kind.lower() not in kinds:
        expected = ", ".join(sorted(kinds))
        raise Forbidden(f"a name that ends in one of these expected: {expected}")


@contextmanager
def entered(root: Path, place: FilePlace, *, make: bool = False) -> Iterator[OpenFilePlace]:
    """Open the folder of the file; with `make`, make it if it is missing.

    Raises Forbidden for a link that leads out, FileNotFoundError or NotADirectoryError for a missing folder.
    """
    top = Path(os.path.realpath(root))
    steps = _resolved(top, place)
    folder = os.open(top, FOLDER)
    try:
        for step in steps[:-1]:
            folder = _step_down(folder, step, make)
        yield OpenFilePlace(folder=folder, name=steps[-1], path="/".join(steps))
    finally:
        os.close(folder)


def leads_to(root: Path, spot: OpenFilePlace, place: FilePlace) -> bool:
    """Return whether this is the file that a name leads to, even if the file system ignores case."""
    try:
        steps = _resolved(Path(os.path.realpath(root)), place)
    except Forbidden:
        return False
    return spot.path.casefold() == "/".join(steps).casefold()


def _resolved(top: Path, place: FilePlace) -> Sequence[str]:
    """Return the steps from the top, with all links resolved."""
    jail = Path(os.path.realpath(top / place.folder))
    file = Path(os.path.realpath(jail.joinpath(*place.steps)))
    if not jail.is_relative_to(top):
        raise Forbidden(f"{place.folder} leads out of the project")
    if jail not in file.parents:
        raise Forbidden(f"it leads out of {place.folder}")
    return file.relative_to(top).parts


def _step_down(folder: int, step: str, make: bool) -> int:
    """Open the folder below and close the one above."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)
    try:
        below = os.open(step, FOLDER, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(step, dir_fd=folder, follow_symlinks=False).st_mode):
            raise Forbidden(PUT_THERE) from None
        raise
    os.close(folder)
    return below


def reason_of(error: Exception) -> str:
    """Return what went wrong with a file, as text for a script."""
    if isinstance(error, OSError):
        if error.errno == errno.ELOOP:
            return PUT_THERE
        return error.strerror or str(error)
    return str(error)


def complaint(function: str, name: bytes, error: Exception) -> str:
    return f"{function}: '{shown(name)}': {reason_of(error)}"
