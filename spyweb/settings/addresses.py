"""Read addresses that may be secrets, and the places of secrets: no error message repeats either.

`${NAME}` in an address is replaced when the address is used: a command in a shell does not have the daemon's
environment.  The place of a secret is `env:NAME` or `credential:NAME`; the secret is read when it is needed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from spyweb.files import open_regular
from spyweb.limits import URL
from spyweb.settings.reading import TEXT, Schema, shaped
from spyweb.settings.values import one_line, text

ENV, CREDENTIAL = "env:", "credential:"
LONGEST_SECRET = 4096  # bytes

_PLACE = re.compile(r"(?:env:[A-Za-z_][A-Za-z0-9_]*|credential:[A-Za-z0-9_][A-Za-z0-9_.-]*)")
SECRET_PLACE: Schema = {"type": "string", "pattern": f"^{_PLACE.pattern}$"}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,99})\}")
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")


@shaped(TEXT)
def address_template(value: object) -> str:
    """Read a web address that may hold `${NAME}`; "" is no address."""
    if not text(value):
        return ""
    address = one_line(value).strip()
    if not address.startswith("${"):  # else all of it may be a variable
        check_address(_VARIABLE.sub("variable", address))
    return address


def expand(address: str, environ: Mapping[str, str]) -> str:
    """Return an address with `${NAME}` replaced.  Raises ValueError, whose text does not repeat the address."""
    return check_address(substitute(address, environ))


def substitute(template: str, environ: Mapping[str, str]) -> str:
    """Return a text with `${NAME}` replaced by variables.  Raises ValueError."""
    if missing := missing_variables(template, environ):
        raise ValueError(f"the variable {missing[0]} is not set")
    return _VARIABLE.sub(lambda found: environ[found[1]].strip(), template)


def missing_variables(address: str, environ: Mapping[str, str]) -> list[str]:
    """Return the names in an address of variables that are not set."""
    return [name for name in _VARIABLE.findall(address) if not environ.get(name, "").strip()]


def check_address(address: str) -> str:
    """Return a web address.  Raises ValueError, whose text does not repeat the address."""
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or _UNSAFE.search(address) or len(address) > URL:
        raise ValueError("expected an address: https:// or http://, a host, and a port up to 65535 if any")
    return address


def is_on_this_machine(url: str) -> bool:
    """Return whether an address obviously is one of this machine."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@shaped(SECRET_PLACE)
def secret_place(value: object) -> str:
    """Read the place of a secret.  Raises ValueError, without the value: it may be the secret itself."""
    place = text(value)
    if not _PLACE.fullmatch(place):
        raise ValueError('expected the place of the secret, "env:NAME" or "credential:NAME", not the secret itself')
    return place


def read_secret(place: str, environ: Mapping[str, str]) -> bytes:
    """Return the secret at `env:NAME` or `credential:NAME`; empty if there is none."""
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
