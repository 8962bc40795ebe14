"""The ops http_get, http_post, http_request and http_multipart: build a Fetch, and return a response or an error.

A wrong type raises; any other failure of a request is `nil, {error, kind, proxy}`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from spyweb.errors import FetchError, NotPermitted, OpError
from spyweb.limits import HEADER_BLOCK, HEADERS, PARTS, too_large
from spyweb.model import MIB
from spyweb.ops.arguments import (
    ArgumentReader,
    Table,
    Text,
    needed_text_in,
    positive_in,
    read_as,
    read_table,
    read_text,
    table_in,
    text_in,
)
from spyweb.ops.network.request import FetchRequest, Response, fetch_of, with_defaults
from spyweb.ops.op import NET, OpEffect, OpFamily, op, refuse_in_dry_run
from spyweb.ops.world import Call
from spyweb.settings.reading import nearest

LUA_HEADERS = "table<string, string|number>"
LUA_RESULTS = "HttpResponse? response, HttpError? error"

FAMILY = OpFamily(
    name="HTTP", errors="A failed request returns nil and an `HttpError`; only a wrong type of argument raises."
)

FORM = b"application/x-www-form-urlencoded"
CONTENT_TYPE = b"content-type"
OPTIONS = ("url", "method", "body", "headers", "proxy", "timeout", "max_body_size")
MOST_NAMED = 20  # options that are checked: a table may have any number
READING = (b"GET", b"HEAD", b"OPTIONS")  # methods that a server is not to change anything for

Outcome: TypeAlias = tuple[dict[str, object] | None, dict[str, object] | None]  # a response, or an error


class Part(Struct, frozen=True, kw_only=True):
    """One field: a text, or a file when it has a filename or a type."""

    name: bytes
    content: bytes
    filename: bytes | None = None
    type: bytes | None = None

    @property
    def head_size(self) -> int:
        """Return the size of the part's head in bytes, as the script gave it."""
        return len(self.name) + len(self.filename or b"") + len(self.type or b"")


def read_headers(value: object) -> dict[bytes, bytes]:
    some = dict(islice(read_table(value).items(), HEADERS + 1))  # a request with more is refused
    return {name: read_as(f"header '{_shown(name)}'", read_text, given) for name, given in _named(some).items()}


def read_parts(value: object) -> Sequence[Part]:
    """Read the fields of a form, in the order of their names."""
    table = read_table(value)
    if len(table) > PARTS:
        return [Part(name=b"", content=b"")] * len(table)  # refused by their number
    return [_part(name, given) for name, given in sorted(_named(table).items())]


def _part(name: bytes, value: object) -> Part:
    if not isinstance(value, dict | list):
        return Part(name=name, content=read_as(f"field '{_shown(name)}'", read_text, value))
    table = read_table(value)
    texts = {
        key: read_as(f"field '{_shown(name)}': {key}", read_text, given)
        for key in ("content", "filename", "type")
        if (given := table.get(key.encode())) is not None or key == "content"
    }
    return Part(name=name, **texts)


def _named(table: Mapping[object, object]) -> dict[bytes, object]:
    return {read_as("a key", read_text, key): value for key, value in table.items()}


def _shown(text: bytes) -> str:
    return text[:80].decode("utf-8", "replace")


def request_in(table: Mapping[object, object], before: FetchRequest) -> FetchRequest:
    """Read a request; an address, a method and headers that are missing are those of `before`."""
    headers = table_in(table, "headers")
    return FetchRequest(
        url=text_in(table, "url") or before.url,
        max_body_size=positive_in(table, "max_body_size"),
        method=text_in(table, "method") or before.method,
        body=text_in(table, "body"),
        headers=before.headers if headers is None else read_headers(headers),
        proxy=text_in(table, "proxy"),
        timeout_s=positive_in(table, "timeout"),
    )


Headers = Annotated[dict[bytes, bytes], ArgumentReader("table", "table", read_headers)]
Parts = Annotated[Sequence[Part], ArgumentReader("table", "table", read_parts)]


@op(needs=NET, effect=OpEffect.NONE, types=f"(url: string, headers?: {LUA_HEADERS}): {LUA_RESULTS}")
async def http_get(call: Call, url: Text, headers: Headers | None = None) -> Outcome:
    """Fetch an address; return a response, or nil and an error."""
    return await _fetch(call, "http_get", FetchRequest(url=url, headers=headers or {}))


@op(needs=NET, types=f"(url: string, body: string|number, headers?: {LUA_HEADERS}): {LUA_RESULTS}")
async def http_post(call: Call, url: Text, body: Text, headers: Headers | None = None) -> Outcome:
    """Post a body; return a response, or nil and an error.

    Without a content type among the headers the body is sent as a form.
    """
    headers = headers or {}
    if not any(name.lower() == CONTENT_TYPE for name in headers):
        headers = {**headers, CONTENT_TYPE: FORM}
    return await _fetch(call, "http_post", FetchRequest(url=url, method=b"POST", body=body, headers=headers))


@op(needs=NET, effect=OpEffect.LOOKS, types=f"(options: HttpOptions): {LUA_RESULTS}")
async def http_request(call: Call, options: Table) -> Outcome:
    """Make a request of any kind; return a response, or nil and an error.

    The options are `url`, and `method`, `body`, `headers`, `proxy`, `timeout` (seconds) and `max_body_size` (MB).
    """
    wanted = request_in(options, FetchRequest(url=needed_text_in(options, "url")))
    for name in (_shown(key) if isinstance(key, bytes) else str(key) for key in islice(options, MOST_NAMED)):
        if name not in OPTIONS:
            call.log("warn", f"http_request: there is no option '{name}'{nearest(name, OPTIONS)}".encode())
    if call.is_dry and wanted.method.upper() not in READING:
        refuse_in_dry_run(call, f"http_request with {wanted.method.decode('ascii', 'replace')[:20]}", ())
    return await _fetch(call, "http_request", wanted)


@op(
    needs=NET,
    types=f"(url: string, fields: table<string, string|number|HttpFile>, headers?: {LUA_HEADERS}): {LUA_RESULTS}",
)
async def http_multipart(call: Call, url: Text, fields: Parts, headers: Headers | None = None) -> Outcome:
    """Post a form with files; return a response, or nil and an error.

    A field is a text, or a table with `content` and optionally `filename` and `type`.
    """
    if len(fields) > PARTS:
        return _failed(FetchError("http", too_large("a form", len(fields), PARTS, "fields")))
    try:
        is_large = sum(len(part.content) + part.head_size for part in fields) > MIB
        kind, body = await asyncio.to_thread(encode_parts, fields) if is_large else encode_parts(fields)
    except FetchError as error:
        return _failed(error)
    others = {name: value for name, value in (headers or {}).items() if name.lower() != CONTENT_TYPE}
    wanted = FetchRequest(url=url, method=b"POST", body=body, headers={**others, CONTENT_TYPE: kind})
    return await _fetch(call, "http_multipart", wanted)


async def _fetch(call: Call, function: str, wanted: FetchRequest) -> Outcome:
    http = call.world.http
    try:
        wanted = replace(wanted, headers=with_defaults(wanted.headers, http.settings))
        most = call.memory_limit  # more could not be handed to the script
        return response_to_lua(await http.fetch(fetch_of(wanted, http.settings, most, call.gate(function)))), None
    except NotPermitted as error:
        if not error.is_redirect:  # the script has written the address itself
            raise OpError(str(error)) from None
        return _failed(error)
    except FetchError as error:
        return _failed(error)


def response_to_lua(response: Response) -> dict[str, object]:
    return without_nil({**asdict(response), "size": len(response.body)})


def without_nil(table: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in table.items() if value is not None}


def _failed(error: FetchError) -> Outcome:
    failure: dict[str, object] = {"error": str(error), "kind": error.kind}
    if error.proxy is not None:
        failure["proxy"] = error.proxy
    return None, failure


# multipart/form-data, encoded as browsers do, so that no name or value can break out of its part

_ESCAPES = ((b"\r", b"%0D"), (b"\n", b"%0A"), (b'"', b"%22"))  # the HTML standard's own


def encode_parts(parts: Sequence[Part]) -> tuple[bytes, bytes]:
    """Return the content type and the body.  Raises FetchError."""
    boundary = secrets.token_hex(24).encode("ascii")
    lines = []
    for part in parts:
        lines += [b"--" + boundary, *_head(part), b"", part.content]
    lines += [b"--" + boundary + b"--", b""]
    return b"multipart/form-data; boundary=" + boundary, b"\r\n".join(lines)


def _head(part: Part) -> list[bytes]:
    if part.head_size > HEADER_BLOCK:
        raise FetchError("http", too_large("the head of a part", part.head_size, HEADER_BLOCK))
    disposition = b'Content-Disposition: form-data; name="%s"' % _escape(part.name)
    if part.filename is not None:
        disposition += b'; filename="%s"' % _escape(part.filename)
    kind = part.type or (b"application/octet-stream" if part.filename is not None else None)
    if kind is None:
        return [disposition]
    if b"\r" in kind or b"\n" in kind:
        raise FetchError("http", "a part's type has a line break in it")
    return [disposition, b"Content-Type: " + kind]


def _escape(text: bytes) -> bytes:
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text
