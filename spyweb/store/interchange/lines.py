"""Convert entries to JSON Lines and back, the format of `spyweb state export` and `import`.

`{"namespace": "state", "key": "a", "value": 1, "expires_ms": null, "created_ms": 1, "updated_ms": 1}`.  Key and value
are in the form of value_json.py.  The three moments may be left out: without `expires_ms` it never expires.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from spyweb.model import NULL, Value
from spyweb.settings.values import NAMESPACE
from spyweb.store.interchange.value_json import decode_json, from_plain, to_plain
from spyweb.store.model.entries import SCOPES, STATE, Entry, PortableEntry

MOMENTS = ("expires_ms", "created_ms", "updated_ms")
FIELDS = frozenset({"namespace", "key", "value", *MOMENTS})
OF_LOCAL = f"{STATE}@local"
END = b'{"end":'  # beginning of the last line of an export, which says how many entries came before it
LATEST_MS = 1 << 53
UNKNOWN_MS = 0  # of a moment that a line leaves out


class BadLine(ValueError):
    """A line that is not a valid entry, with its number from 1 and the reason."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number
        self.reason = reason


def entry_line(portable: PortableEntry) -> bytes:
    """Return the entry as one line, with its line break."""
    entry = portable.entry
    fields = {
        "namespace": portable.namespace,
        "key": to_plain(portable.key),
        "value": to_plain(entry.value),
        **{name: getattr(entry, name) for name in MOMENTS},
    }
    return msgspec.json.encode(fields) + b"\n"


class LineReader:
    """Reads the lines of one export in order, each of at most `most_values` values."""

    def __init__(self, most_values: int | None = None) -> None:
        self._most_values = most_values
        self._number = 0
        self._entries = 0  # since the last line that counted them
        self._seen: dict[tuple[str, bytes], int] = {}

    def read(self, line: bytes) -> PortableEntry | None:
        """Return the entry, or None for a blank line and for the last line of an export.

        Raises BadLine for an invalid or repeated entry, and where an export has lost some.
        """
        self._number += 1
        if not line.strip():
            return None
        if line.startswith(END):
            if b"".join(line.split()) != b"%s%d}" % (END, self._entries):
                end = line.strip()[:40].decode("utf-8", "replace")
                raise BadLine(self._number, f"{end} ends an export, but {self._entries} entries precede it")
            self._entries = 0
            return None
        self._entries += 1
        try:
            portable = parse_line(line, self._most_values)
        except ValueError as error:
            raise BadLine(self._number, str(error)) from error
        first = self._seen.setdefault((portable.namespace, portable.key), self._number)
        if first != self._number:
            raise BadLine(self._number, f"has the same key as line {first}")
        return portable


def parse_line(line: bytes, most_values: int | None = None) -> PortableEntry:
    """Return the entry in a line.  Raises ValueError with the reason."""
    fields = decode_json(line, most_values)
    if not isinstance(fields, dict):
        raise ValueError("is not a JSON object")
    unknown = fields.keys() - FIELDS
    if unknown:
        raise ValueError(f"has a field that no entry has: {min(unknown)}")
    name = fields.get("namespace")
    namespace = find_namespace(name) if isinstance(name, str) else None
    if namespace is None:
        raise ValueError(f"namespace: expected state, state@AGENT, scope:NAME, job:ID or global, not {_shown(name)}")
    key, value = _read("key", fields), _read("value", fields)
    if not isinstance(key, bytes):
        raise ValueError(f"key: expected text, not {_shown(fields['key'])}")
    if value is NULL and not namespace.startswith(SCOPES):
        raise ValueError("value: only a scope can keep JSON's null, by itself or in a table")
    entry = Entry(
        value=value,
        version=1,
        created_ms=_moment(fields, "created_ms") or UNKNOWN_MS,
        updated_ms=_moment(fields, "updated_ms") or UNKNOWN_MS,
        expires_ms=_moment(fields, "expires_ms"),
    )
    return PortableEntry(namespace=namespace, key=key, entry=entry)


def find_namespace(name: str) -> str | None:
    """Return the namespace of this name, or None.  The agent `local` has the namespace `state` itself."""
    if name == OF_LOCAL:
        return STATE
    return name if re.fullmatch(NAMESPACE, name) else None


def _read(name: str, fields: Mapping[str, object]) -> Value:
    if name not in fields:
        raise ValueError(f"has no {name}")
    try:
        return from_plain(fields[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _moment(fields: Mapping[str, object], name: str) -> int | None:
    moment = fields.get(name)
    if moment is None:
        return None
    if isinstance(moment, bool) or not isinstance(moment, int) or not 0 <= moment <= LATEST_MS:
        raise ValueError(f"{name}: expected milliseconds since 1970, not {_shown(moment)}")
    return moment


def _shown(plain: object) -> str:
    return msgspec.json.encode(plain).decode()[:40]
