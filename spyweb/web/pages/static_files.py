"""Hold the files that pages need, each with a tag of its content, and compressed once for each way of doing it."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

FOLDER = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TAG_LENGTH = 12
LEVEL = 9  # they are compressed once


class StaticFile(Struct, frozen=True):
    """One file as it is sent."""

    media: str
    body: bytes
    zipped: bytes
    tag: str  # of its content


class StaticFiles(Struct, frozen=True):
    """The files by name; there are no others.

    All have one version, which is a part of their addresses: so what imports another gets the one of its own version.
    """

    files: Mapping[str, StaticFile]
    version: str

    @classmethod
    def load(cls, folder: Path = FOLDER) -> StaticFiles:
        bodies = {path: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in TYPES}
        files = {
            path.name: StaticFile(TYPES[path.suffix], body, gzip.compress(body, LEVEL, mtime=0), _tag(body))
            for path, body in bodies.items()
        }
        return cls(files, _tag(b"".join(bodies.values())))


@cache
def static_files() -> StaticFiles:
    """Return the files of this process; they are read at the first page, in a thread."""
    return StaticFiles.load()


def _tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:TAG_LENGTH]
