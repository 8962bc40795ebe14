"""Open and replace files at paths where other users may have put something else.

A path below a folder is resolved first, with all links in it, and refused where it leads out.  Then it is opened step
by step from that folder without following a link: one that is put there in between is an error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

import msgspec
from msgspec import Struct

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW  # NONBLOCK: opening a FIFO would wait for a writer
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
MODE = 0o640  # of new files, less what the daemon's umask forbids
LEADS_OUT = "it leads out of the folder that is permitted"

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_STEP = _FOLDER | getattr(os, "O_PATH", 0)  # which needs no right to read
_NAME = re.compile(r"\w[\w.-]*")
_LONGEST_LIST = 16 << 20  # bytes
_LONGEST_BESIDE = 200  # bytes of a file's name in the name beside it


class Forbidden(Exception):
    """A path is refused; the text says why."""


class RealPath(NamedTuple):
    """A path without a link in it."""

    top: str  # a folder, absolute
    steps: tuple[str, ...]  # from there


def open_regular(path: str | Path) -> FileIO:
    """Open a file for reading.  Raises OSError, also if it is not a regular file: a pipe would wait for its writer."""
    file = FileIO(path, opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(0, "not a regular file")


def resolve(top: str | Path, base: str, path: str = "") -> RealPath:
    """Resolve a path below top/base.  Raises Forbidden if it leads out."""
    real_top = os.path.realpath(top)
    steps = tuple(step for step in f"{base}/{path}".split("/") if step)
    if not _has_links(real_top, steps):  # as nearly always, and this takes a tenth of the time
        return RealPath(real_top, steps)
    real_base = Path(os.path.realpath(os.path.join(real_top, base)))
    real = Path(os.path.realpath(real_base / path))
    if not real_base.is_relative_to(real_top) or not real.is_relative_to(real_base):
        raise Forbidden(LEADS_OUT)
    return RealPath(real_top, real.relative_to(real_top).parts)


def _has_links(top: str, steps: Sequence[str]) -> bool:
    """Return whether a step is a link, or one that only looks like a name."""
    for step in steps:
        top = f"{top}/{step}"
        if step in (".", "..") or os.path.islink(top):
            return True
    return False


def open_folder(
    path: RealPath,
    *,
    last: int = _FOLDER,
    make: int | None = None,
    before_make: Callable[[int], None] = lambda _folder: None,
) -> int:
    """Return a descriptor of a folder.  Raises OSError.

    With `make`, the mode of new folders, missing folders are made, after `before_make` has checked the one above.
    """
    folder = os.open(path.top, _FOLDER)
    for number, step in enumerate(path.steps, 1):
        flags = _FOLDER if make is not None else last if number == len(path.steps) else _STEP
        try:
            try:
                below = os.open(step, flags, dir_fd=folder)
            except NotADirectoryError:
                if stat.S_ISLNK(os.stat(step, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, "a link was put there") from None
                raise
            except FileNotFoundError:
                if make is None:
                    raise
                before_make(folder)
                with suppress(FileExistsError):
                    os.mkdir(step, make, dir_fd=folder)
                    os.fsync(folder)
                below = os.open(step, flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def open_file(path: RealPath, flags: int) -> int:
    """Return a descriptor of an existing file.  Raises OSError."""
    if not path.steps:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    folder = open_folder(RealPath(path.top, path.steps[:-1]), last=_STEP)
    try:
        return os.open(path.steps[-1], flags, dir_fd=folder)
    finally:
        os.close(folder)


def write_whole(file: int, data: bytes) -> None:
    """Write all of the data at the end of the file, or raise OSError and write none."""
    before = os.fstat(file).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, before)  # removes the half line
        raise


def replace(
    folder: int,
    name: str,
    pieces: Iterable[bytes],
    *,
    mode: int | None = None,
    is_durable: bool = True,
    is_alone: bool = True,
) -> None:
    """Write a file beside the old one, and put it in its place: at any moment it is the one or the other, whole.

    A durable one is on the disk before this returns.  A file with only one writer always uses the same temporary name,
    so that the remains of a crash are replaced by the next write.
    """
    token = "" if is_alone else token_hex(4)
    beside = f".{os.fsdecode(os.fsencode(name)[:_LONGEST_BESIDE])}.spyweb-new{token}"
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    file = os.open(beside, _CREATE, MODE if mode is None else 0o600, dir_fd=folder)
    try:
        for piece in pieces:
            write_whole(file, piece)
        if mode is not None:
            os.fchmod(file, mode)
        if is_durable:
            os.fsync(file)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    finally:
        os.close(file)
    if is_durable:
        os.fsync(folder)


class FileList(Struct):
    """The names of files, as JSON beside them has it."""

    files: tuple[str, ...] = ()


def replace_all(folder: Path, files: Mapping[str, bytes], listed: str) -> None:
    """Write files that everybody may read, each as a whole, and remove those that only an earlier call has written.

    `listed` is the file among them that names all, as a FileList.  A folder that has one of the files, but none of an
    earlier call, is somebody else's.  Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        earlier = _listed_in(folder / listed)
        if not earlier and (strange := next((name for name in files if (folder / name).exists()), "")):
            raise FileExistsError(errno.EEXIST, f"{strange} is there already, and spyweb has not written it")
        for name in earlier - files.keys():
            with suppress(OSError):
                os.unlink(name, dir_fd=opened)
        for name, content in sorted(files.items(), key=lambda file: file[0] != listed):
            if not (folder / name).is_file() or (folder / name).read_bytes() != content:
                replace(opened, name, [content], mode=0o644)
    finally:
        os.close(opened)


def _listed_in(path: Path) -> set[str]:
    """Return the names that a file lists, but for paths; none where it can't be read."""
    try:
        with open_regular(path) as file:
            return set(filter(_NAME.fullmatch, msgspec.json.decode(file.read(_LONGEST_LIST), type=FileList).files))
    except (OSError, msgspec.DecodeError):
        return set()
