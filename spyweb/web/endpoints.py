"""Serve the project's own content: /api/v/NAME and /api/public/NAME by its server/init.lua, pages from its folder ui/.

A request is converted here for the handler, and any return value of the handler becomes a valid response.
Pages lie at the root of the site; an address without an extension that names no file gets index.html, as the router of
a page expects.  No address leads out of the folder, or to a file whose name begins with a dot.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from spyweb.endpoints import NOT_FOUND, EndpointAnswer, Endpoints
from spyweb.errors import PoolError
from spyweb.web.access.guard import API, PRIVATE, PUBLIC
from spyweb.web.access.headers import DASHBOARD_PORT, NOT_SENT, is_ours
from spyweb.web.access.principal import Right
from spyweb.web.access.recognise import KEY_HEADER, RECOGNISER, AccessRule, bearer_of
from spyweb.web.answer import WholeAnswer, describe, json_answer
from spyweb.web.body import BODY_MEMORY, Body

ENDPOINTS = web.AppKey("endpoints", Endpoints)

REST = "{rest:(?s:.*)}"  # an escape may be a line's end
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})

TEXT, BINARY = "text/plain; charset=utf-8", "application/octet-stream"
SANDBOX = "sandbox allow-scripts allow-forms"
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BREAKS = re.compile(rb"[\r\n\0]")

FOLDER, INDEX = "ui", "index.html"
UI: web.AppKey[Path] = web.AppKey("folder of the pages")

# What the machine's own table may lack or, on some, gets wrong.
TYPES = {
    ".css": "text/css", ".html": "text/html", ".ico": "image/x-icon", ".js": "text/javascript",
    ".json": "application/json", ".map": "application/json", ".mjs": "text/javascript", ".svg": "image/svg+xml",
    ".txt": "text/plain", ".wasm": "application/wasm", ".webmanifest": "application/manifest+json",
    ".webp": "image/webp", ".woff": "font/woff", ".woff2": "font/woff2", ".xml": "text/xml",
}  # fmt: skip
UTF_8 = ("text/", "application/json", "application/manifest+json")

RequestFields = dict[str, object]


async def answer_public_endpoint(request: web.Request) -> web.StreamResponse:
    return await answer_endpoint(request, is_public=True)


async def answer_endpoint(request: web.Request, *, is_public: bool = False) -> web.StreamResponse:
    try:
        with closing(Body(request.app[BODY_MEMORY])) as body:
            content = await body.read(request) if request.body_exists else b""
            fields = describe_request(request, content, is_public=is_public)
            answer = await request.app[ENDPOINTS].answer(fields) if fields["route"] else NOT_FOUND
            return make_response(answer, is_public=is_public)
    except PoolError as error:
        busy = json_answer(describe(error), 503)
        busy.headers["Retry-After"] = "1"
        return busy


def describe_request(request: web.Request, body: bytes, *, is_public: bool) -> RequestFields:
    """Return the argument of the procedure `request` (lua/session.py: Procedure)."""
    path = request.rel_url.raw_path
    route, *path_args = [_unquote(part) for part in path.split("/")[3:]]
    if path_args and not path_args[-1]:
        path_args.pop()
    fields: RequestFields = {
        "method": request.method,
        "path": path,
        "path_args": path_args,
        "headers": _headers_of(request),
        "client_ip": _client_ip(request.remote or ""),
        "route": route,
        "is_public": is_public,
        **_read_query(request.rel_url.raw_query_string),
    }
    if body or request.method in WITH_BODY:
        fields["body"] = body
    return fields


def _read_query(raw: str) -> RequestFields:
    """Parse a query: the last value of each name as `query`, all of them as `query_all`."""
    last: dict[bytes, bytes] = {}
    together: dict[bytes, list[bytes]] = {}
    for piece in filter(None, raw.split("&")):
        name, _, value = piece.replace("+", " ").partition("=")
        key = _unquote(name)
        last[key] = _unquote(value)
        together.setdefault(key, []).append(last[key])
    return {"query": last, "query_all": together}


def _headers_of(request: web.Request) -> dict[str, str]:
    """Return the headers with one value a name: repeated ones are joined.

    The sender's keys and sessions are left out: with them a script would have the sender's rights.
    """
    recogniser = request.app.get(RECOGNISER)
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        key, joint = name.lower(), ", "
        if key == "cookie":
            value, joint = ";".join(each for each in value.split(";") if not is_ours(each)).strip(), "; "
        is_key = key == KEY_HEADER.lower()
        if key == "authorization" and recogniser:
            is_key = recogniser.knows(bearer_of(value))
        if value and not is_key:
            headers[key] = f"{headers[key]}{joint}{value}" if key in headers else value
    return headers


def _unquote(text: str) -> bytes:
    return unquote_to_bytes(text) if "%" in text else text.encode()


def _client_ip(remote: str) -> str:
    """Return the address of the connection; headers in which a client names another are left to the handler."""
    address = remote.partition("%")[0]
    return str(IPv6Address(address).ipv4_mapped or address) if address.startswith("::ffff:") else address


def make_response(answer: EndpointAnswer, *, is_public: bool = False) -> web.Response:
    headers = CIMultiDict(sendable(answer.headers)) if answer.headers else CIMultiDict[str]()
    if answer.body and "Content-Type" not in headers:
        headers["Content-Type"] = TEXT if _is_text(answer.body) else BINARY
    if is_public:
        headers.setdefault("X-Content-Type-Options", "nosniff")
        kind = headers.get("Content-Type", "").lower()
        if "html" in kind or "xml" in kind:  # it may show text of strangers: no origin, unless its script sets a policy
            headers.setdefault("Content-Security-Policy", SANDBOX)
    response = WholeAnswer(status=answer.status, body=answer.body, headers=headers)
    if answer.status < 200:  # no other follows: a client that waits for it shall not wait for ever
        response.force_close()
    return response


def sendable(headers: Mapping[bytes, bytes]) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        if _NAME.fullmatch(name) and not _BREAKS.search(value):
            text, sent = name.decode("ascii"), value.decode("utf-8", "surrogateescape")
            if text.lower() not in NOT_SENT and not (text.lower() == "set-cookie" and is_ours(sent)):
                yield text, sent


def _is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


ENDPOINT_ROUTES = [
    web.route("*", PRIVATE + REST, answer_endpoint),
    web.route("*", PUBLIC + REST, answer_public_endpoint),
]
ENDPOINT_RULES: Mapping[Handler, AccessRule] = {
    answer_endpoint: AccessRule(Right.RUN, of_project=True),
    answer_public_endpoint: AccessRule(None, of_project=True),
}


async def serve_file(request: web.Request) -> web.StreamResponse:
    if request.path.startswith(API):
        raise web.HTTPNotFound
    found = await asyncio.to_thread(find_file, request.app[UI], request.rel_url.raw_path)
    if found is None:
        port = request.app.get(DASHBOARD_PORT)
        raise web.HTTPNotFound(text=f"there is no such page; the dashboard is on port {port}" if port else None)
    headers = {"Content-Type": type_of(found), "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return web.FileResponse(found, headers=headers)


def find_file(folder: Path, raw_path: str) -> Path | None:
    """Return the file that a percent-encoded path of a request means."""
    parts = [unquote(part, errors="surrogateescape") for part in raw_path.split("/") if part]
    if any(part.startswith(".") or {"/", "\\", "\0"} & set(part) for part in parts):
        return None
    found = _file_in(folder, parts) or _file_in(folder, [*parts, INDEX])
    if found is None and not (parts and "." in parts[-1]):
        found = _file_in(folder, [INDEX])
    return found


def type_of(path: Path) -> str:
    kind = TYPES.get(path.suffix.lower()) or mimetypes.guess_type(path.name, strict=False)[0] or BINARY
    return f"{kind}; charset=utf-8" if kind.startswith(UTF_8) else kind


def _file_in(folder: Path, parts: list[str]) -> Path | None:
    """Return the file, if it is in the folder: links are followed as long as they stay inside."""
    try:
        inside = folder.resolve(strict=True)
        path = inside.joinpath(*parts).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a loop of links
        return None
    return path if path.is_relative_to(inside) and path.is_file() else None


# Not below /api/: the router would offer them where another method is wrong.
UI_ROUTES = [web.get("/{path:(?!api/).*}", serve_file)]
