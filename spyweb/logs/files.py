"""Append to a log file inside the project, with rotation."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from spyweb.files import APPEND, MODE, open_folder, resolve, write_whole

MAX_BYTES = 10 * (1 << 20)  # of one file
KEPT = 5  # older files: NAME.1 is the newest of them


def append(root: Path, folder: str, name: str, data: bytes) -> None:
    """Append the data to root/folder/name, making a missing folder.

    Raises Forbidden for a folder that leads out of the root, and OSError, and then adds nothing.
    """
    place = open_folder(resolve(root, folder), make=0o777)
    try:
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
    finally:
        os.close(place)


def _open_file(folder: int, name: str) -> int:
    descriptor = os.open(name, APPEND, MODE, dir_fd=folder)
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
