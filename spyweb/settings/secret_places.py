"""Find secrets: a setting names the place, `env:NAME` or `credential:NAME`, which is read when the secret is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from spyweb.files import open_regular
from spyweb.settings.shapes import Schema, shaped
from spyweb.settings.values import text

ENV, CREDENTIAL = "env:", "credential:"
LONGEST_SECRET = 4096  # bytes

_PLACE = re.compile(r"(?:env:[A-Za-z_][A-Za-z0-9_]*|credential:[A-Za-z0-9_][A-Za-z0-9_.-]*)")
SECRET_PLACE: Schema = {"type": "string", "pattern": f"^{_PLACE.pattern}$"}


@shaped(SECRET_PLACE)
def secret_place(value: object) -> str:
    """Read where a secret is found.  Raises ValueError, without the value: it may be the secret itself."""
    place = text(value)
    if not _PLACE.fullmatch(place):
        raise ValueError('expected where it is found, "env:NAME" or "credential:NAME", not the secret itself')
    return place


def read_secret(place: str, environ: Mapping[str, str]) -> bytes:
    """Return the secret at `env:NAME` or `credential:NAME`; empty where there is none."""
    if place.startswith(ENV):
        return environ.get(place.removeprefix(ENV), "").strip().encode("utf-8", "surrogateescape")
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return b""
    try:
        with open_regular(Path(folder) / place.removeprefix(CREDENTIAL)) as file:
            return file.read(LONGEST_SECRET).strip()
    except OSError:
        return b""
