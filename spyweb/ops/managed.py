"""Bring files and folders into the state that `file.*` asks for: nothing is written where it is already so.

A file is compared by size, then by content; one that differs is written beside the old one and put in its place: at any
moment, even after a crash, it is the old one or the new one.  Everything here waits for the disk: call it in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from asyncio import Semaphore
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from msgspec import Struct

from spyweb import limits
from spyweb.logs.files import write_whole
from spyweb.model import MIB
from spyweb.ops.beneath import BeneathOpener
from spyweb.ops.jail import SHARED, Forbidden, steps_of
from spyweb.permissions.policy import JOB

PIECE = MIB  # bytes read at once
LARGEST_TEXT = 10 * MIB  # bytes of a file whose lines are looked at or changed, or of a template
LARGEST = 1 << 30  # bytes of a file: a thread is busy with it
FILE_MODE, FOLDER_MODE = 0o644, 0o755  # of new ones, unless something else is asked for
LOCKS = 64  # two files may share one
AT_ONCE = 3  # works in threads, of all jobs: large files must not keep every thread from the other ops

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # NONBLOCK: opening a FIFO would wait for a writer
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STEP_UP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC  # O_PATH needs no right to read
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
WOULD_WRITE = "it would be written"


class ManagedPlace(Struct, frozen=True):
    """A path below a root that the job may use."""

    top: str  # a folder, absolute
    base: tuple[str, ...]  # the steps from there to the root; made if they are missing
    steps: tuple[str, ...]  # from the root to the file or folder


def find_place(
    path: bytes, top: str, folder: str, *, root_of: Callable[[str], str], permit: Callable[[str], None]
) -> ManagedPlace:
    """Return the place that a name means to a job: below its folder, below `shared/`, or an absolute path.

    `root_of` gives the permitted root of an absolute path, `permit` is asked for the other two; either raises what
    refuses.  Raises Forbidden for a name that nobody may use.
    """
    if path.startswith(b"/"):
        steps = steps_of(path.lstrip(b"/"))
        root = root_of("/" + "/".join(steps))
        below = steps[len([step for step in root.split("/") if step]) :]
        if not below:
            raise Forbidden("it is the whole folder that is permitted")
        return ManagedPlace(root or "/", (), below)
    steps = steps_of(path)
    if steps[0] == SHARED and len(steps) > 1:
        permit(SHARED)
        return ManagedPlace(top, (SHARED,), steps[1:])
    permit(JOB)
    return ManagedPlace(top, tuple(folder.split("/")), steps)


class ManagedOutcome(Struct, frozen=True):
    changed: bool
    message: str
    checksum: str | None = None


class ManagedFiles:
    """The files that scripts keep in a state, with locks so that one writer at a time uses each.

    Nothing is written in the folder `kept_out`, wherever a path leads.
    """

    def __init__(self, opener: BeneathOpener | None = None, kept_out: Path | None = None) -> None:
        self._opener = opener or BeneathOpener()
        self._kept_out = kept_out
        self.turns = Semaphore(AT_ONCE)
        self._locks = tuple(Lock() for _ in range(LOCKS))

    # Every method raises Forbidden, OSError.

    def read(self, place: ManagedPlace, limit: int) -> bytes:
        """Return the content of a file of at most this size."""
        with self._source(place) as file:
            if (size := os.fstat(file).st_size) > limit:
                raise Forbidden(limits.too_large("it", size, limit))
            return _content(file)[:limit]

    def stat(self, place: ManagedPlace, *, hashed: bool = True) -> dict[str, object]:
        """Return what is there; of a file its checksum too, unless that is not wanted.  A link is not followed."""
        try:
            with self._parent(place) as folder:
                if folder is None:
                    return {"exists": False}
                name = place.steps[-1]
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                found: dict[str, object] = {
                    "exists": True,
                    "type": next((kind for is_kind, kind in _KINDS if is_kind(status.st_mode)), "other"),
                    "size": status.st_size,
                    "mode": f"{stat.S_IMODE(status.st_mode):04o}",
                    "modified": int(status.st_mtime),
                }
                if hashed and found["type"] == "file" and status.st_size <= LARGEST:
                    with _existing(folder, name) as file:
                        found["checksum"] = None if file is None else _checksum(file)
                return found
        except (FileNotFoundError, NotADirectoryError):
            return {"exists": False}

    def copy(self, source: ManagedPlace, place: ManagedPlace, mode: int | None, *, check: bool) -> ManagedOutcome:
        """Make a file equal to another one."""
        with (
            self._roots(source, place, make=not check) as (from_root, root),
            self._opened(from_root, source) as file,
            self._folder(root, place, write=True) as folder,
        ):
            if folder is None:
                return ManagedOutcome(True, WOULD_WRITE, _checksum(file))
            status, name = os.fstat(file), place.steps[-1]
            if status.st_size > LARGEST:
                raise Forbidden(limits.too_large("it", status.st_size, LARGEST))
            with self._turn(folder, name), _existing(folder, name) as existing:
                checksum = _checksum_if_equal(file, existing)
                if existing is not None and checksum is not None:
                    return _with_mode(existing, mode, checksum, check=check)
                if check:
                    return ManagedOutcome(True, WOULD_WRITE, _checksum(file))
                new_mode = _mode_for(existing, mode, stat.S_IMODE(status.st_mode) & 0o777)
                return _replace(folder, name, new_mode, _pieces(file))

    def put(
        self, place: ManagedPlace, content: bytes, mode: int | None, *, check: bool, expected: bytes | None = None
    ) -> ManagedOutcome | None:
        """Make a file have this content; None if it is not, any more, as it was expected to be (b"": not there)."""
        checksum = hashlib.sha256(content).hexdigest()
        with self._parent(place, write=True, make=not check) as folder:
            if folder is None:
                return ManagedOutcome(True, WOULD_WRITE, checksum)
            name = place.steps[-1]
            with self._turn(folder, name), _existing(folder, name) as existing:
                if expected is not None and _content(existing) != expected:
                    return None
                if existing is not None and _has(existing, content, checksum):
                    return _with_mode(existing, mode, checksum, check=check)
                if check:
                    return ManagedOutcome(True, WOULD_WRITE, checksum)
                return _replace(folder, name, _mode_for(existing, mode, FILE_MODE), iter((content,)))

    def mkdir(self, place: ManagedPlace, mode: int | None, *, check: bool) -> ManagedOutcome:
        """Make a folder, and those above it that are missing."""
        with self._root(place, make=not check) as root:
            if root is None:
                return ManagedOutcome(True, "it would be made")
            try:
                folder = self._opener.open(root, "/".join(place.steps), _FOLDER)
            except FileNotFoundError:
                if check:
                    return ManagedOutcome(True, "it would be made")
                os.close(self._made(root, place.steps, mode, place))
                return ManagedOutcome(True, "made")
            try:
                self._check_writable(folder, place)
                return _with_mode(folder, mode, None, check=check)
            finally:
                os.close(folder)

    def remove(self, place: ManagedPlace, *, check: bool) -> ManagedOutcome:
        """Remove a file, a link or an empty folder."""
        name = place.steps[-1]
        try:
            with self._parent(place, write=True) as folder:
                if folder is None:
                    return ManagedOutcome(False, "it is not there")
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if check:
                    return ManagedOutcome(True, "it would be removed")
                if stat.S_ISDIR(status.st_mode):
                    os.rmdir(name, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)
                os.fsync(folder)
                return ManagedOutcome(True, "removed")
        except (FileNotFoundError, NotADirectoryError):
            return ManagedOutcome(False, "it is not there")

    # Ways in

    @contextmanager
    def _root(self, place: ManagedPlace, *, make: bool = False) -> Iterator[int | None]:
        """Open the root; None where the folder of a job is not there yet, and is not to be made."""
        folder = os.open(place.top, _FOLDER)
        try:
            if place.base:
                top = folder
                try:
                    folder = self._opener.open(top, "/".join(place.base), _FOLDER)
                except FileNotFoundError:
                    if not make:
                        yield None
                        return
                    folder = self._made(top, place.base, None, place)
                os.close(top)
            yield folder
        finally:
            os.close(folder)

    def _made(self, folder: int, steps: tuple[str, ...], mode: int | None, place: ManagedPlace) -> int:
        """Make what is missing of a path, and return a descriptor of its end."""
        below = os.dup(folder)
        for count, step in enumerate(steps, 1):
            try:
                self._check_writable(below, place)
                with suppress(FileExistsError):
                    os.mkdir(step, FOLDER_MODE, dir_fd=below)
                    os.fsync(below)
            finally:
                os.close(below)
            below = self._opener.open(folder, "/".join(steps[:count]), _FOLDER)
        if mode is not None:
            os.fchmod(below, mode)
        return below

    @contextmanager
    def _roots(
        self, source: ManagedPlace, place: ManagedPlace, *, make: bool
    ) -> Iterator[tuple[int | None, int | None]]:
        """Open the roots of a file that is there already and of another one: once where they are the same."""
        if (source.top, source.base) == (place.top, place.base):
            with self._root(source) as root:
                yield root, root
        else:
            with self._root(source) as from_root, self._root(place, make=make) as root:
                yield from_root, root

    @contextmanager
    def _parent(self, place: ManagedPlace, *, write: bool = False, make: bool = False) -> Iterator[int | None]:
        """Open the folder of the file; None where the folder of a job is not there yet, and is not to be made."""
        with self._root(place, make=make) as root, self._folder(root, place, write=write) as folder:
            yield folder

    @contextmanager
    def _folder(self, root: int | None, place: ManagedPlace, *, write: bool) -> Iterator[int | None]:
        """Open the folder of the file, below an open root."""
        above = "/".join(place.steps[:-1])
        folder = root if root is None or not above else self._opener.open(root, above, _FOLDER)
        try:
            if write and folder is not None:
                self._check_writable(folder, place)
            yield folder
        finally:
            if folder is not None and folder != root:
                os.close(folder)

    def _check_writable(self, folder: int, place: ManagedPlace) -> None:
        """Raise Forbidden for what spyweb keeps, to which a root that is permitted may lead."""
        root = os.path.join(place.top, *place.base, "")
        if self._kept_out is not None and (not place.base or str(self._kept_out).startswith(root)):
            with suppress(FileNotFoundError):
                if _is_inside(folder, os.stat(self._kept_out)):
                    raise Forbidden("spyweb keeps its own there")

    @contextmanager
    def _source(self, place: ManagedPlace) -> Iterator[int]:
        """Open a file that is there already."""
        with self._root(place) as root, self._opened(root, place) as file:
            yield file

    @contextmanager
    def _opened(self, root: int | None, place: ManagedPlace) -> Iterator[int]:
        """Open a file that is there already, below an open root."""
        if root is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        file = self._opener.open(root, "/".join(place.steps), _READ)
        try:
            _check_file(os.fstat(file))
            yield file
        finally:
            os.close(file)

    def _turn(self, folder: int, name: str) -> Lock:
        status = os.fstat(folder)
        return self._locks[hash((status.st_dev, status.st_ino, name)) % LOCKS]


@contextmanager
def _existing(folder: int, name: str) -> Iterator[int | None]:
    """Open the file of this name, if there is one.  Raises Forbidden for anything else of this name."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        yield None
        return
    _check_file(status)
    file = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder)
    try:
        _check_file(os.fstat(file))
        yield file
    finally:
        os.close(file)


def _is_inside(folder: int, outer: os.stat_result) -> bool:
    """Return whether a folder is another one, or below it, by whatever path it was opened."""
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


def _content(file: int | None) -> bytes:
    return b"" if file is None else b"".join(_pieces(file))


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


def _with_mode(opened: int, wanted: int | None, checksum: str | None, *, check: bool) -> ManagedOutcome:
    """Return the outcome for what is as it should be, but perhaps for its mode."""
    mode = stat.S_IMODE(os.fstat(opened).st_mode)
    if wanted is None or mode == wanted:
        return ManagedOutcome(False, "unchanged", checksum)
    if not check:
        os.fchmod(opened, wanted)
    verb = "would be" if check else "is"
    return ManagedOutcome(True, f"its mode {verb} {wanted:04o} instead of {mode:04o}", checksum)


def _replace(folder: int, name: str, mode: int, pieces: Iterator[bytes]) -> ManagedOutcome:
    """Write a file beside the old one and put it in its place; both are on the disk before this returns.

    The name beside it is always the same: what a crash has left is replaced by the next that writes this file.
    """
    beside = f".{name}.spyweb-new"
    made = hashlib.sha256()
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    file = os.open(beside, _CREATE, 0o600, dir_fd=folder)
    try:
        for piece in pieces:
            made.update(piece)
            write_whole(file, piece)
        os.fchmod(file, mode)
        os.fsync(file)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    finally:
        os.close(file)
    os.fsync(folder)
    return ManagedOutcome(True, "written", made.hexdigest())
