"""The kinds of checks: the settings of each, the names that its conditions see, and its script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files

from msgspec import Struct

from spyweb.checks.conditions import LONGEST, find_problem
from spyweb.errors import Refused
from spyweb.limits import HOST as LONGEST_HOST
from spyweb.model import MIB
from spyweb.settings.addresses import check_address
from spyweb.settings.reading import NOT_BLANK, TEXT, Reading, Shape, list_of, shaped, wrong
from spyweb.settings.script_values import to_text
from spyweb.settings.units import MINUTE_MS, SECOND_MS
from spyweb.settings.values import boolean, duration, headers, line, one_line, one_of, size, text, texts, whole

CHECK = "check"
ANY_CHECK = "any"  # in place of a kind: the keys of all
MOST_CONDITIONS = 20
MOST_CONFIRM = 5
TIMEOUT_MS = 10 * SECOND_MS
PAUSE_MS = 2 * SECOND_MS  # before the second try, as in expect.lua; doubled before each further one
STEPS = 2  # of one try, each with the whole timeout: an answer, and a certificate
MARGIN_MS = 15 * SECOND_MS  # of a run, beside its tries and their pauses


class CheckKind(StrEnum):
    HTTP = "http"
    TCP = "tcp"
    TLS = "tls"
    DNS = "dns"
    PING = "ping"
    COMMAND = "command"
    FEED = "feed"


class _Kind(Struct, frozen=True):
    names: tuple[str, ...]  # in conditions
    required: tuple[str, ...]
    others: tuple[str, ...] = ()


@shaped({"type": "string", "pattern": r"^\s*[Hh][Tt][Tt][Pp][Ss]?://"})
def _url(value: object) -> str:
    return check_address(one_line(value).strip())  # whose error does not repeat it: there may be a password in it


@shaped({"type": "string", "pattern": r"^[A-Za-z]{1,20}$"})
def _method(value: object) -> str:
    method = text(value)
    if not (method.isascii() and method.isalpha() and len(method) <= 20):
        raise wrong('a method such as "POST"', value)
    return method.upper()


@shaped({"type": "string", "pattern": r"^[^\s/@?#]+$", "maxLength": LONGEST_HOST})
def _host(value: object) -> str:
    host = line(LONGEST_HOST)(value)
    if set(host) & set(" /@?#") or host.count(":") == 1:
        raise ValueError("expected the name or address of a host alone, without https:// and without a port")
    return host


@shaped({"anyOf": [NOT_BLANK, list_of(TEXT, minItems=1)]})
def _command(value: object) -> str | list[str]:
    """Read a command: a text is for the shell, a list is a program and its arguments."""
    words = [one_line(value)] if isinstance(value, str) else list(texts(value))
    if not words or not words[0].strip() or any("\0" in word for word in words):
        raise ValueError("expected a command: a program and its arguments")
    return words[0] if isinstance(value, str) else words


def _conditions_over(names: Collection[str]) -> Shape[list[str]]:
    @shaped(list_of({**NOT_BLANK, "maxLength": LONGEST}, minItems=1, maxItems=MOST_CONDITIONS))
    def read(value: object) -> list[str]:
        conditions = list(texts(value))
        if not 0 < len(conditions) <= MOST_CONDITIONS:
            raise ValueError(f"expected 1 to {MOST_CONDITIONS} conditions, not {len(conditions)}")
        problems = [problem for each in conditions if (problem := find_problem(each, names))]
        if problems:
            raise ValueError("; also ".join(problems))
        return conditions

    return read


_KEYS: Mapping[str, Callable[[object], object]] = {
    "url": _url,
    "method": _method,
    "headers": shaped(headers.schema)(lambda value: dict(headers(value))),
    "body": text,
    "max_body_size": shaped(size(1024, 1024 * MIB).schema)(lambda value: size(1024, 1024 * MIB)(value) / MIB),
    "host": _host,
    "port": whole(1, 65_535),
    "send": text,
    "tls": boolean,
    "type": line(20),
    "server": line(LONGEST_HOST),
    "count": whole(1, 10),
    "command": _command,
}
KINDS: Mapping[CheckKind, _Kind] = {
    CheckKind.HTTP: _Kind(
        ("status", "latency", "body", "size", "headers", "json", "ip", "redirects", "cert_days"),
        ("url",),
        ("method", "headers", "body", "max_body_size"),
    ),
    CheckKind.TCP: _Kind(("connected", "latency", "banner"), ("host", "port"), ("send", "tls")),
    CheckKind.TLS: _Kind(("days", "issuer", "names", "chain_ok", "latency"), ("host",), ("port",)),
    CheckKind.DNS: _Kind(("records", "rcode", "ttl", "latency"), ("host",), ("type", "server")),
    CheckKind.PING: _Kind(("loss", "latency"), ("host",), ("count",)),
    CheckKind.COMMAND: _Kind(("exit", "stdout", "stderr", "latency"), ("command",)),
    CheckKind.FEED: _Kind(("entries", "newest", "title", "latency"), ("url",), ("headers", "max_body_size")),
}
_EVERY = _Kind(tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.names)), (), tuple(_KEYS))


def take_check(read: Reading, kind: str, *, is_named: bool) -> tuple[str, int]:
    """Return the settings of a check as its script sees them, in JSON, and the limit of its runs in milliseconds.

    Of one whose kind is wrong, which its reader reports, the settings of any kind are taken.
    One that its file does not name needs a name of its own.
    """
    read.take(CHECK, one_of(CheckKind), None)
    found = KINDS[CheckKind(kind)] if kind in KINDS else _EVERY
    shapes = {key: _KEYS[key] for key in (*found.required, *found.others)} | {"expect": _conditions_over(found.names)}
    values = {key: value for key, shape in shapes.items() if (value := read.take(key, shape, None)) is not None}
    read.required += found.required
    for key in (*found.required, *(() if is_named else ("name",))):
        if not read.has(key):
            read.refuse(f"needs the key {key} as well", CHECK)
    confirm: int = read.take("confirm", whole(0, MOST_CONFIRM), 0)
    timeout_ms: int = read.take("timeout", duration(1, MINUTE_MS), TIMEOUT_MS)
    limit_ms = (1 + confirm) * STEPS * timeout_ms + PAUSE_MS * (2**confirm - 1) + MARGIN_MS
    try:
        as_text = to_text({**values, "confirm": confirm, "timeout": timeout_ms / SECOND_MS})
    except ValueError as error:
        read.refuse(str(error), CHECK)
        as_text = ""
    return as_text, limit_ms


def check_values(kind: str | None, values: Mapping[str, object]) -> None:
    """Check the conditions, if there are any, that a run of a check has instead of its own.  Raises Refused."""
    try:
        if kind and "expect" in values:
            _conditions_over(KINDS[CheckKind(kind)].names)(values["expect"])
    except ValueError as error:
        raise Refused(f"expect: {error}") from None


@cache
def script_of(kind: CheckKind) -> tuple[str, bytes]:
    """Return the script of a check: a path, which is none of the project's, and its text."""
    folder = files("spyweb.checks")
    parts = [(folder / name).read_bytes() for name in (f"{kind}.lua", "expect.lua")]
    return f"spyweb/checks/{kind}.lua", b"\n".join(parts)
