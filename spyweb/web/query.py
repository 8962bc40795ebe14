"""Parameters of an address that hold what scripts call things: any bytes, percent-encoded."""

from __future__ import annotations

from urllib.parse import parse_qsl

from aiohttp import web


def bytes_in_query(request: web.Request, name: str, default: bytes | None = None) -> bytes:
    return _find(request, name, default)


def text_in_query(request: web.Request, name: str, default: str | None = None) -> str:
    found = _find(request, name, None if default is None else default.encode())
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise web.HTTPBadRequest(text=f"{name}: expected UTF-8") from error


def _find(request: web.Request, name: str, default: bytes | None) -> bytes:
    """Of several with one name the last.  Read from the address as it was sent: `request.query` is decoded text."""
    raw = request.rel_url.raw_query_string
    pairs = parse_qsl(raw, keep_blank_values=True, encoding="utf-8", errors="surrogateescape")
    found = dict(pairs).get(name)
    if found is not None:
        return found.encode("utf-8", "surrogateescape")
    if default is None:
        raise web.HTTPBadRequest(text=f"{name}: is missing")
    return default
