"""Read and write the files of a project, and of the folders beside it that jobs may use.

Nothing leads out of these folders.  A file that is replaced is at any moment the old one or the new one, even after a
crash; one that `file.*` asks for is compared by size, then by content, and nothing is written where it is already so.
Two appends to one file don't mix, whichever jobs they come from.  Everything here waits for the disk: call it in a
thread.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from asyncio import Semaphore
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock

from msgspec import Struct

from spyweb import limits
from spyweb.clock import Clock
from spyweb.files import (
    APPEND,
    LEADS_OUT,
    MODE,
    READ,
    Forbidden,
    RealPath,
    open_file,
    open_folder,
    replace,
    resolve,
    write_whole,
)
from spyweb.logs.job import NAME as LOG_NAME
from spyweb.model import MIB
from spyweb.ops.files.names import FilePlace
from spyweb.permissions.policy import SHARED

PIECE = MIB  # bytes read at once
LARGEST_TEXT = 10 * MIB  # bytes of a file whose lines are read or changed, or of a template
LARGEST = 1 << 30  # bytes of a file: a thread is busy with it
FILE_MODE, FOLDER_MODE = 0o644, 0o755  # of what `file.*` makes, unless something else is asked for
MAX_BYTES = 10 * MIB  # of a file that is appended to; a full one is renamed ...
KEPT = 5  # ... and so many older ones are kept
STAMP = "[0-9]{8}-[0-9]{6}"
FIRST = ("", 0)  # sorts before any other
LOCKS = 64  # two files may share one
AT_ONCE = 3  # works of `file.*` in threads, of all jobs: large files must not keep every thread from the other ops

_STEP_UP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC  # O_PATH needs no right to read
_KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
WOULD_WRITE = "it would be written"


class FileOutcome(Struct, frozen=True):
    changed: bool
    message: str
    checksum: str | None = None


class Files:
    """The files that jobs may use, with locks so that one writer at a time uses each.

    Nothing is written in the folder `kept_out`, wherever a path leads.
    """

    def __init__(self, root: Path, clock: Clock, kept_out: Path | None = None) -> None:
        self.root = root
        self.top = os.path.realpath(root)
        self._clock = clock
        self._kept_out = kept_out
        self.turns = Semaphore(AT_ONCE)
        self._locks = tuple(Lock() for _ in range(LOCKS))

    # Every method raises Forbidden, OSError.

    def read(self, place: FilePlace, limit: int, *, by_only_name: bool = False) -> bytes:
        """Return the content of a file of at most this size; by its only name, if that is wanted."""
        with _source(place) as file:
            if by_only_name:
                _refuse_second_name(file)
            return _read_at_most(file, limit)

    def append(self, place: FilePlace, content: bytes) -> None:
        """Append all of the content, or raise OSError and append none.  A file that would be too large is renamed."""
        with self._to_write(place) as (folder, name):
            with _checked(os.open(name, APPEND, MODE, dir_fd=folder)) as file:
                _refuse_second_name(file)
                if not is_full(os.fstat(file).st_size, len(content)):
                    write_whole(file, content)
                    return
            rotate(folder, name, self._clock.now_ms())
            with _checked(os.open(name, APPEND, MODE, dir_fd=folder)) as file:
                write_whole(file, content)

    def overwrite(self, place: FilePlace, content: bytes) -> None:
        """Replace a file by one with this content.  A second name of it (a hard link) keeps the old file."""
        with self._to_write(place) as (folder, name):
            with suppress(FileNotFoundError):
                _check_file(os.stat(name, dir_fd=folder, follow_symlinks=False))
            replace(folder, name, [content], is_alone=False)

    def stat(self, place: FilePlace, *, hashed: bool = True) -> dict[str, object]:
        """Return the status of a path; of a file its checksum too, if wanted.  A link is not followed."""
        try:
            with self._entered(place) as folder:
                status = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
                found: dict[str, object] = {
                    "exists": True,
                    "type": next((kind for is_kind, kind in _KINDS if is_kind(status.st_mode)), "other"),
                    "size": status.st_size,
                    "mode": f"{stat.S_IMODE(status.st_mode):04o}",
                    "modified": int(status.st_mtime),
                }
                if hashed and found["type"] == "file" and status.st_size <= LARGEST:
                    with _existing(folder, place.name) as file:
                        found["checksum"] = None if file is None else _checksum(file)
                return found
        except (FileNotFoundError, NotADirectoryError):
            return {"exists": False}

    def copy(self, source: FilePlace, place: FilePlace, mode: int | None, *, check: bool) -> FileOutcome:
        """Make a file equal to another one."""
        with _source(source) as file:
            status = os.fstat(file)
            if status.st_size > LARGEST:
                raise Forbidden(limits.too_large("it", status.st_size, LARGEST))
            if not self._has_base(place, make=not check):
                return FileOutcome(True, WOULD_WRITE, _checksum(file))
            with self._changing(place) as folder, _existing(folder, place.name) as existing:
                checksum = _checksum_if_equal(file, existing)
                if existing is not None and checksum is not None:
                    return _with_mode(existing, mode, checksum, check=check)
                if check:
                    return FileOutcome(True, WOULD_WRITE, _checksum(file))
                new_mode = _mode_for(existing, mode, stat.S_IMODE(status.st_mode) & 0o777)
                made = hashlib.sha256()
                replace(folder, place.name, _hashed(_pieces(file), made.update), mode=new_mode)
                return FileOutcome(True, "written", made.hexdigest())

    def put(
        self, place: FilePlace, content: bytes, mode: int | None, *, check: bool, expected: bytes | None = None
    ) -> FileOutcome | None:
        """Make a file have this content; None if it is not, any more, as it was expected to be (b"": not there)."""
        checksum = hashlib.sha256(content).hexdigest()
        if not self._has_base(place, make=not check):
            return FileOutcome(True, WOULD_WRITE, checksum)
        with self._changing(place) as folder, _existing(folder, place.name) as existing:
            if expected is not None and b"".join(_pieces(existing) if existing is not None else ()) != expected:
                return None
            if existing is not None and _has(existing, content, checksum):
                return _with_mode(existing, mode, checksum, check=check)
            if check:
                return FileOutcome(True, WOULD_WRITE, checksum)
            replace(folder, place.name, [content], mode=_mode_for(existing, mode, FILE_MODE))
            return FileOutcome(True, "written", checksum)

    def mkdir(self, place: FilePlace, mode: int | None, *, check: bool) -> FileOutcome:
        """Make a folder, and those above it that are missing."""
        path, is_new = resolve(place.top, place.base, place.path), False
        try:
            folder = open_folder(path)
        except FileNotFoundError:
            if check:
                return FileOutcome(True, "it would be made")
            folder, is_new = self._made(place, path), True
        try:
            self._check_writable(folder, place)
            outcome = _with_mode(folder, mode, None, check=check)
            return FileOutcome(True, "made") if is_new else outcome
        finally:
            os.close(folder)

    def remove(self, place: FilePlace, *, check: bool) -> FileOutcome:
        """Remove a file, a link or an empty folder."""
        try:
            with self._changing(place) as folder:
                status = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
                if check:
                    return FileOutcome(True, "it would be removed")
                if stat.S_ISDIR(status.st_mode):
                    os.rmdir(place.name, dir_fd=folder)
                else:
                    os.unlink(place.name, dir_fd=folder)
                os.fsync(folder)
                return FileOutcome(True, "removed")
        except (FileNotFoundError, NotADirectoryError):
            return FileOutcome(False, "it is not there")

    # Ways in

    @contextmanager
    def _entered(self, place: FilePlace) -> Iterator[int]:
        """Open the folder of a file."""
        folder = open_folder(resolve(place.top, place.base, place.above))
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _to_write(self, place: FilePlace) -> Iterator[tuple[int, str]]:
        """Open the folder of the file that a name, or a link, leads to; it is made where it is missing."""
        path = resolve(place.top, place.base, place.path)
        if path == resolve(place.top, place.base):  # by a link
            raise Forbidden(LEADS_OUT)
        _refuse_log(place, path)
        folder, name = self._made(place, RealPath(path.top, path.steps[:-1]), 0o777), path.steps[-1]
        try:
            with self._turn(folder, name):
                yield folder, name
        finally:
            os.close(folder)

    def _made(self, place: FilePlace, path: RealPath, mode: int = FOLDER_MODE) -> int:
        return open_folder(path, make=mode, before_make=partial(self._check_writable, place=place))

    def _has_base(self, place: FilePlace, *, make: bool) -> bool:
        """Return whether the folder of the job is there, once it is made, where it may be."""
        if not place.base or os.path.lexists(os.path.join(place.top, place.base)):
            return True
        if make:
            os.close(self._made(place, resolve(place.top, place.base)))
        return make

    @contextmanager
    def _changing(self, place: FilePlace) -> Iterator[int]:
        """Open the folder of a file that is to be changed, once no other thread changes it."""
        with self._entered(place) as folder, self._turn(folder, place.name):
            self._check_writable(folder, place)
            yield folder

    def _check_writable(self, folder: int, place: FilePlace) -> None:
        """Raise Forbidden for what spyweb keeps, to which a root that is permitted may lead."""
        root = os.path.join(place.top, place.base, "")
        if self._kept_out is not None and (not place.base or str(self._kept_out).startswith(root)):
            with suppress(FileNotFoundError):
                if _is_inside(folder, os.stat(self._kept_out)):
                    raise Forbidden("spyweb keeps its own there")

    def _turn(self, folder: int, name: str) -> Lock:
        status = os.fstat(folder)
        return self._locks[hash((status.st_dev, status.st_ino, name)) % LOCKS]


def _refuse_log(place: FilePlace, path: RealPath) -> None:
    """Raise Forbidden for the job's log, by any name, even if the file system ignores case."""
    if place.base == SHARED:
        return
    try:
        log = resolve(place.top, place.base, LOG_NAME)
    except Forbidden:  # it leads elsewhere
        return
    if "/".join(log.steps).casefold() == "/".join(path.steps).casefold():
        raise Forbidden("it is the job's log, which spyweb alone writes")


def _source(place: FilePlace) -> AbstractContextManager[int]:
    """Open a file that is there already."""
    return _checked(open_file(resolve(place.top, place.base, place.path), READ))


@contextmanager
def _checked(file: int) -> Iterator[int]:
    """Close a file at the end of the block.  Raises Forbidden if it is not a plain one."""
    try:
        _check_file(os.fstat(file))
        yield file
    finally:
        os.close(file)


@contextmanager
def _existing(folder: int, name: str) -> Iterator[int | None]:
    """Open the file of this name, if there is one.  Raises Forbidden for anything else of this name."""
    try:
        _check_file(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        yield None
        return
    with _checked(os.open(name, READ, dir_fd=folder)) as file:
        yield file


def _refuse_second_name(file: int) -> None:
    if os.fstat(file).st_nlink > 1:
        raise Forbidden("it is a hard link: the same file has a name elsewhere")


def _read_at_most(file: int, limit: int) -> bytes:
    """Read a file, but never more than the script could take, even if the file grows meanwhile."""
    pieces, size = [], 0
    piece_size = min(PIECE, os.fstat(file).st_size + 1)
    while size <= limit and (piece := os.read(file, min(piece_size, limit + 1 - size))):
        pieces.append(piece)
        size += len(piece)
    if (size := max(size, os.fstat(file).st_size)) > limit:
        raise Forbidden(limits.too_large("it", size, limit))
    return b"".join(pieces)


def _is_inside(folder: int, outer: os.stat_result) -> bool:
    """Return whether a folder is another one, or below it, opened by any path."""
    here = os.dup(folder)
    try:
        status = os.fstat(here)
        while not os.path.samestat(status, outer):
            above = os.open("..", _STEP_UP, dir_fd=here)
            os.close(here)
            here, below = above, status
            status = os.fstat(here)
            if os.path.samestat(status, below):
                return False
        return True
    finally:
        os.close(here)


def _check_file(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise Forbidden("it is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise Forbidden("it is not a plain file")


def _pieces(file: int) -> Iterator[bytes]:
    """Read a file from its beginning."""
    os.lseek(file, 0, os.SEEK_SET)
    while piece := os.read(file, PIECE):
        yield piece


def _hashed(pieces: Iterator[bytes], note: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        note(piece)
        yield piece


def _checksum(file: int) -> str:
    made = hashlib.sha256()
    for piece in _pieces(file):
        made.update(piece)
    return made.hexdigest()


def _checksum_if_equal(file: int, other: int | None) -> str | None:
    """Return the checksum of a file if another one has the same content."""
    if other is None:
        return None
    wanted, found = os.fstat(file), os.fstat(other)
    if wanted.st_size != found.st_size or found.st_nlink > 1:
        return None
    made = hashlib.sha256()
    size = min(PIECE, wanted.st_size + 1)
    while (piece := os.read(file, size)) == os.read(other, size):
        if not piece:
            return made.hexdigest()
        made.update(piece)
    return None


def _has(file: int, content: bytes, checksum: str) -> bool:
    """Return whether a file has this content, and no other name, by which it would be written as well."""
    status = os.fstat(file)
    return status.st_size == len(content) and status.st_nlink == 1 and _checksum(file) == checksum


def _mode_for(existing: int | None, wanted: int | None, default: int) -> int:
    if wanted is not None:
        return wanted
    return default if existing is None else stat.S_IMODE(os.fstat(existing).st_mode) & 0o777


def _with_mode(opened: int, wanted: int | None, checksum: str | None, *, check: bool) -> FileOutcome:
    """Return the outcome for an unchanged file, whose mode may differ."""
    mode = stat.S_IMODE(os.fstat(opened).st_mode)
    if wanted is None or mode == wanted:
        return FileOutcome(False, "unchanged", checksum)
    if not check:
        os.fchmod(opened, wanted)
    verb = "would be" if check else "is"
    return FileOutcome(True, f"its mode {verb} {wanted:04o} instead of {mode:04o}", checksum)


# A full file is set aside: `data.csv` is renamed `data.20260514-143005.csv`, stamped in UTC, or -143005-2.csv


def is_full(size: int, more: int) -> bool:
    """Return whether this many more bytes are too many for a file of this size; an empty file takes anything."""
    return size > 0 and size + more > MAX_BYTES


def rotate(folder: int, name: str, now_ms: int) -> None:
    """Rename the file, and delete the oldest of those renamed before.  No other thread may use this file meanwhile."""
    names = os.listdir(folder)
    aside = name_aside(names, name, now_ms)
    with suppress(FileNotFoundError):
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    for old in kept_aside([*names, aside], name)[:-KEPT]:
        with suppress(FileNotFoundError):
            os.unlink(old, dir_fd=folder)


def name_aside(names: list[str], name: str, now_ms: int) -> str:
    """Return the new name of a full file, which sorts after the names of the others, also with a clock set back."""
    stem, _, kind = name.rpartition(".")
    stamp, number = f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y%m%d-%H%M%S}", 1
    last = max((place_in_line(found, name) or FIRST for found in names), default=FIRST)
    if last >= (stamp, number):
        stamp, number = last[0], last[1] + 1
    return f"{stem}.{stamp}.{kind}" if number == 1 else f"{stem}.{stamp}-{number}.{kind}"


def kept_aside(names: list[str], name: str) -> list[str]:
    """Return the names of the older files of this name, oldest first."""
    places = {found: place for found in names if (place := place_in_line(found, name))}
    return sorted(places, key=places.__getitem__)


def place_in_line(found: str, name: str) -> tuple[str, int] | None:
    """Return the stamp and number in a file's name if it is an older file of this name."""
    stem, _, kind = name.rpartition(".")
    match = re.fullmatch(rf"{re.escape(stem)}\.({STAMP})(?:-([0-9]{{1,9}}))?\.{re.escape(kind)}", found)
    return (match[1], int(match[2] or 1)) if match else None
