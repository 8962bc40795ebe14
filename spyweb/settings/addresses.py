"""Read addresses that may be secrets: variables of the environment stand in them, and no error repeats them.

They are put in when the address is used: a command in a shell has not the environment of the daemon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from spyweb.limits import URL
from spyweb.settings.shapes import TEXT, shaped
from spyweb.settings.values import one_line, text

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
    """Return an address with variables in place of `${NAME}`.  Raises ValueError, which tells nothing of it."""
    return check_address(substitute(address, environ))


def substitute(template: str, environ: Mapping[str, str]) -> str:
    """Return a text with variables in place of `${NAME}`.  Raises ValueError."""
    if missing := missing_variables(template, environ):
        raise ValueError(f"the variable {missing[0]} is not set")
    return _VARIABLE.sub(lambda found: environ[found[1]].strip(), template)


def missing_variables(address: str, environ: Mapping[str, str]) -> list[str]:
    """Return the names in an address of variables that are not set."""
    return [name for name in _VARIABLE.findall(address) if not environ.get(name, "").strip()]


def check_address(address: str) -> str:
    """Return a web address.  Raises ValueError, which tells nothing of it."""
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or _UNSAFE.search(address) or len(address) > URL:
        raise ValueError("expected an address that begins with https:// or http://")
    return address
