"""What libraries would load or set up at their import, though the daemon has no use for it, is left out: 4 MB."""

from __future__ import annotations

import mimetypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_NOBODY = os.devnull
WHILE_IMPORTING = {
    # aiohttp reads everybody's certificates, twice: 2 MB, 70 ms.  Its contexts trust nobody; ops/network has its own.
    "SSL_CERT_FILE": _NOBODY,
    "SSL_CERT_DIR": _NOBODY,
    # Its signals are such lists; they are the only thing that needs the C++ library: 1 MB.
    "FROZENLIST_NO_EXTENSIONS": "1",
}


@contextmanager
def lean_imports() -> Iterator[None]:
    """What is imported inside, for the first time, takes less."""
    sys.modules["rich"] = None  # type: ignore[assignment]  # structlog loads it where it finds it: 6 MB for nothing
    before, tables = {name: os.environ.get(name) for name in WHILE_IMPORTING}, mimetypes.knownfiles
    os.environ.update(WHILE_IMPORTING)
    mimetypes.knownfiles = []  # aiohttp reads this machine's table of file types, twice: 0.4 MB; web/ui.py has its own
    try:
        yield
    finally:
        mimetypes.knownfiles = tables
        _restore(before)


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
