"""An HTTP request as a Lua endpoint is told of it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address
from urllib.parse import unquote_to_bytes

from aiohttp import web

PRIVATE, PUBLIC = "/api/v/", "/api/public/"
BEFORE_NAME = 3  # parts of an address
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
COOKIE = "cookie"

Asked = dict[str, object]


def asked_of(request: web.Request, prefix: str, body: bytes) -> Asked | None:
    """The argument of the procedure `request` (lua/procedures.py).  None: its address names no endpoint."""
    path = request.rel_url.raw_path
    route, *path_args = [_bytes_of(part) for part in path.split("/")[BEFORE_NAME:]]
    asked: Asked = {
        "method": request.method,
        "path": path,
        "path_args": _without_last_slash(path_args),
        "headers": _headers(request.headers.items()),
        "client_ip": _client_ip(request.remote or ""),
        "route": route,
        "is_public": prefix == PUBLIC,
        **_query(request.rel_url.raw_query_string),
    }
    if body or request.method in WITH_BODY:
        asked["body"] = body
    return asked if route else None


def _query(raw: str) -> Asked:
    """Of several values of a name the last one, which is text in any case; all of them in `query_all`."""
    if not raw:
        return {"query": {}, "query_all": {}}
    last: dict[bytes, bytes] = {}
    together: dict[bytes, list[bytes]] = {}
    for piece in filter(None, raw.split("&")):
        name, _, value = piece.replace("+", " ").partition("=")
        key = _bytes_of(name)
        last[key] = _bytes_of(value)
        together.setdefault(key, []).append(last[key])
    return {"query": last, "query_all": together}


def _headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """One value a name: those of a repeated one are joined."""
    headers: dict[str, str] = {}
    for name, value in items:
        key = name.lower()
        if key in headers:
            value = f"{headers[key]}{'; ' if key == COOKIE else ', '}{value}"
        headers[key] = value
    return headers


def _bytes_of(text: str) -> bytes:
    return unquote_to_bytes(text) if "%" in text else text.encode()


def _without_last_slash(parts: list[bytes]) -> list[bytes]:
    return parts[:-1] if parts and not parts[-1] else parts


@lru_cache(maxsize=256)
def _client_ip(remote: str) -> str:
    """Of the connection: what a client says of itself in a header is for the handler to believe or not."""
    address = remote.partition("%")[0]
    if address.startswith("::ffff:"):
        mapped = IPv6Address(address).ipv4_mapped
        return str(mapped or address)
    return address
