"""Choose where benchmarks keep their files: on a disk, since a sync to memory is free, and not in the repository."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

IN_MEMORY = {"tmpfs", "ramfs"}
MOUNTS = Path("/proc/self/mounts")


@contextmanager
def folder() -> Iterator[Path]:
    """Make an empty folder, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="spyweb-bench-", dir=find_disk(), ignore_cleanup_errors=True) as name:
        yield Path(name)


@cache
def find_disk() -> Path:
    """Return the machine's folder for temporary files, or one on a disk where that is in memory."""
    candidates = [Path(tempfile.gettempdir()), Path("/var/tmp")]
    return next((place for place in candidates if file_system(place) not in IN_MEMORY), candidates[0])


def describe_disk() -> str:
    kind = file_system(find_disk())
    doubt = ": in memory, a sync costs nothing, so what is said of durability is worth nothing"
    return f"files in {find_disk()}, {kind or 'file system unknown'}{doubt if kind in IN_MEMORY else ''}"


def file_system(place: Path) -> str:
    """Return the kind of the file system, as the kernel names it; empty where it does not say."""
    if not MOUNTS.exists():
        return ""
    mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    above = {path: kind for _, path, kind, *_ in mounts if place.resolve().is_relative_to(path)}
    return above[max(above, key=len)] if above else ""
