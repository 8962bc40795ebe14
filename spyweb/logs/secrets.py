"""Keep secrets out of log lines: by the name of a field, by known values, tokens by their form, and users in a URL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

HIDDEN = "[hidden]"
DEEPEST = 4  # levels of tables in a field that are looked through

_NAMES = re.compile(r"api_?key|spyweb_?key|passw(or)?d|secret|token|authorization|cookie|credential", re.IGNORECASE)
_IN_URL = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
_TOKEN = re.compile(
    r"(spyweb_[0-9A-Za-z]{8})[0-9A-Za-z]{49}"
)  # of keys (web/access/keys.py); its beginning is no secret
_NAMED = re.compile(
    r"""((?:api[_-]?key|passw(?:or)?d|secret|token|authorization|cookie|credential)[\w-]{0,40}["']?\s{0,3}[:=]\s{0,3}"""
    r"""["']?)(?:(?:bearer|basic)\s{1,3})?([^\s"',;&}]+)""",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[\d.\[\]]+|true|false|null|nil|none", re.IGNORECASE)  # after such a name: a count, say
_SHORTEST = 6  # characters; hiding a shorter value would hide ordinary words


class Secrets:
    """Knows the values that no line may show."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        long_enough = {value for value in values if len(value) >= _SHORTEST}
        as_json = {json.dumps(value)[1:-1] for value in long_enough}
        self._values = sorted(long_enough | as_json, key=len, reverse=True)

    def hide_in_text(self, text: str) -> str:
        for value in self._values:
            if value in text:
                text = text.replace(value, HIDDEN)
        if "spyweb_" in text:
            text = _TOKEN.sub(rf"\1{HIDDEN}", text)
        return hide_in_url(text) if "@" in text else text

    def hide_in_prose(self, text: str) -> str:
        """Hide as well what follows such a name: a line of a script's log, as it leaves this machine."""
        return _NAMED.sub(rf"\1{HIDDEN}", self.hide_in_text(text))

    def hide_in_data(self, text: str, note: Callable[[str], None]) -> str:
        """Hide and note the same in a text that a program reads, but no number and no other bare word of JSON."""

        def hide(found: re.Match[str]) -> str:
            if _PLAIN.fullmatch(found[2]):
                return found[0]
            note(found[2])
            return f"{found[1]}{HIDDEN}"

        return _NAMED.sub(hide, self.hide_in_text(text))


def hide_in_url(text: str) -> str:
    """Hide the password of each address in a text."""
    return _IN_URL.sub(rf"\1:{HIDDEN}@", text)


def secrets_in(environ: Mapping[str, str]) -> Secrets:
    """Return the values of the variables whose name says that they are secret."""
    return Secrets(value for name, value in environ.items() if is_secret(name))


def hide_fields(fields: Mapping[str, object], depth: int = 0) -> dict[str, object]:
    """Return the fields without the values whose name shows that they are secret."""
    return {str(name): HIDDEN if is_secret(name) else _hide_inside(value, depth) for name, value in fields.items()}


def is_secret(name: object) -> bool:
    return isinstance(name, str) and bool(_NAMES.search(name.replace("-", "_")))


def _hide_inside(value: object, depth: int) -> object:
    if isinstance(value, Mapping) and depth < DEEPEST:
        return hide_fields(value, depth + 1)
    return value
