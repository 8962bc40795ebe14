"""Append to a log file inside the project, with rotation.

The path can't lead out of the project: symbolic links are resolved first and must stay below the root, then every step
is opened without following links, so that a link put there in between is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_BYTES = 10 * (1 << 20)  # of one file
KEPT = 5  # older files: NAME.1 is the newest of them

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def append(root: Path, folder: str, name: str, data: bytes) -> None:
    """Append the data to root/folder/name, making a missing folder; raise OSError and add nothing otherwise."""
    with _open_folder(root, _steps(root, folder)) as place:
        file = _open_file(place, name)
        try:
            if _is_full(file, len(data)):
                os.close(file)
                file = -1
                _rotate(place, name)
                file = _open_file(place, name)
            write_whole(file, data)
        finally:
            if file >= 0:
                os.close(file)


def _steps(root: Path, folder: str) -> Sequence[str]:
    top = Path(os.path.realpath(root))
    place = Path(os.path.realpath(top / folder))
    if not place.is_relative_to(top):
        raise PermissionError(f"{folder} leads out of the project")
    return place.relative_to(top).parts


@contextmanager
def _open_folder(root: Path, steps: Sequence[str]) -> Iterator[int]:
    descriptor = os.open(os.path.realpath(root), _FOLDER)
    try:
        for step in steps:
            with suppress(FileExistsError):
                os.mkdir(step, dir_fd=descriptor)
            below = os.open(step, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _open_file(folder: int, name: str) -> int:
    descriptor = os.open(name, _APPEND, 0o640, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PermissionError(f"{name} is not a file")
    return descriptor


def _is_full(file: int, more: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and size + more > MAX_BYTES


def _rotate(folder: int, name: str) -> None:
    for number in range(KEPT, 1, -1):
        _rename(folder, f"{name}.{number - 1}", f"{name}.{number}")
    _rename(folder, name, f"{name}.1")


def _rename(folder: int, old: str, new: str) -> None:
    with suppress(FileNotFoundError):
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)


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
