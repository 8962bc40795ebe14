"""The fetches of monitors: whose turn it is, and request, response and result as hooks see them.

Texts stay bytes, as Lua has them, until they go out.  A value that can't be used raises a Mismatch that names the
field; a name that is not read is a warning, and the cycle goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import asdict, replace

from spyweb.errors import FetchError
from spyweb.lua.endings import as_text
from spyweb.model import Monitor, Proxies, Rotation
from spyweb.ops.arguments import read_integer, read_table, table_in, text_in, texts_in, value_in
from spyweb.ops.http import request_in, response_to_lua, without_nil
from spyweb.ops.network.request import FetchRequest, Response, with_defaults
from spyweb.settings.reading import Names
from spyweb.settings.sections import HttpSettings

REQUEST = ("url", "method", "headers", "body", "timeout", "proxy", "max_body_size")
RESPONSE = ("status", "body", "url", "headers")
RESULT = ("ok", "request", "response", "error")

KNOWN = (*RESPONSE, "proxy", "time_ms", "ip", "redirects", "size")  # of a response, as it is given to a hook
SOME = "expected some of "
A_RESPONSE = (f"a response: {SOME}{', '.join(RESPONSE)}", KNOWN)
EXPECTED = {  # by hook: what it returns, and which names of its table mean something
    "before_fetch": (f"a request: {SOME}{', '.join(REQUEST)}", REQUEST),
    "override_fetch": (f"a response: {SOME}{', '.join(RESPONSE)}, or error", (*KNOWN, "error", "kind")),
    "after_fetch": (f"a fetch result: expected {', '.join(RESULT)}, or a response", (*RESULT, *KNOWN)),
}
LIKENESS = 0.7  # of a name and the one that is meant: scripts keep names of their own in these tables
MOST_WAITING = 1_000  # requests to one host
MOST, LONGEST = 32, 32  # names of a table that are compared, and letters in one


class FetchResult(Struct, frozen=True, kw_only=True):
    request: FetchRequest
    response: Response | None = None
    error: str | None = None  # there is no response, or one whose status says no
    kind: str = ""  # of the error

    @property
    def ok(self) -> bool:
        return self.error is None


class ProxyRotation(Struct):
    """Rotates the proxies of one version of a job, for all its workers."""

    proxies: Proxies | None
    random: Callable[[], float]  # 0 ≤ x < 1
    taken: int = 0

    def next_for(self, worker: int) -> str | None:
        """Return the proxy for this worker, counted from 1."""
        if self.proxies is None or not self.proxies.urls:
            return None
        urls = self.proxies.urls
        match self.proxies.rotation:
            case Rotation.STICKY:
                return urls[(worker - 1) % len(urls)]
            case Rotation.RANDOM:
                return urls[int(self.random() * len(urls))]
            case Rotation.ROUND_ROBIN:
                self.taken += 1
                return urls[(self.taken - 1) % len(urls)]


class HostSlot(Struct, eq=False):
    room: asyncio.Semaphore
    users: int = 0  # under way, and waiting


class HostSlots:
    """Lets so many requests to one host go on at a time; the others wait, in their order."""

    def __init__(self, per_host: int) -> None:
        self._per_host = per_host
        self._hosts: dict[str, HostSlot] = {}

    @asynccontextmanager
    async def slot(self, host: str) -> AsyncIterator[None]:
        """Wait for the host's turn, and hold it until the block is left.  Raises FetchError if too many wait."""
        slot = self._hosts.setdefault(host, HostSlot(asyncio.Semaphore(self._per_host)))
        if slot.users >= self._per_host + MOST_WAITING:
            limit = f"[http] per_host = {self._per_host}"
            raise FetchError("connect", f"{MOST_WAITING:,} requests of monitors wait for {host} already: {limit}")
        slot.users += 1
        try:
            async with slot.room:
                yield
        finally:
            slot.users -= 1
            if not slot.users:
                del self._hosts[host]


def first_request(monitor: Monitor, url: str, settings: HttpSettings) -> FetchRequest:
    headers = {name.encode(): value.encode() for name, value in monitor.headers}
    return FetchRequest(url=url.encode(), headers=with_defaults(headers, settings))


def replied(request: FetchRequest, response: Response) -> FetchResult:
    error = None if response.ok else f"http status: {response.status}"
    return FetchResult(request=request, response=response, error=error, kind="" if response.ok else "http")


def failed(request: FetchRequest, message: str, kind: str) -> FetchResult:
    return FetchResult(request=request, error=message, kind=kind)


# To Lua


def request_to_lua(request: FetchRequest) -> dict[str, object]:
    shown = asdict(request)
    return without_nil({"timeout": shown.pop("timeout_s"), **shown})


def result_to_lua(fetched: FetchResult) -> dict[str, object]:
    table: dict[str, object] = {"ok": fetched.ok, "request": request_to_lua(fetched.request)}
    if fetched.response:
        table["response"] = response_to_lua(fetched.response)
    if not fetched.ok:
        table["error"] = {"message": fetched.error, "kind": fetched.kind}
    return table


# From Lua


def read_request(value: object, before: FetchRequest) -> FetchRequest:
    """Read what before_fetch returned; required fields that are missing stay as they were."""
    return request_in(read_table(value), before)


def read_own_fetch(value: object, request: FetchRequest) -> FetchResult:
    """Read what override_fetch returned: a response, or `{error = …}`."""
    table = read_table(value)
    error = table.get(b"error")
    if error is None or error is False:
        return replied(request, _response_in(table, Response(status=200, body=b"", url=request.url)))
    inner = error if isinstance(error, dict) else {}
    text = inner.get(b"message") or inner.get(b"error") or error
    message = as_text(text) if isinstance(text, bytes | int | float) and text is not True else "it failed"
    kind = inner.get(b"kind") or table.get(b"kind")
    return failed(request, message, as_text(kind) if isinstance(kind, bytes) else "unknown")


def read_result(value: object, fetched: FetchResult) -> FetchResult:
    """Read what after_fetch returned, a result or its response: of a success only the body counts."""
    table = read_table(value)
    is_result = any(name in table for name in (b"response", b"request", b"error"))
    is_response = not is_result and (b"body" in table or b"status" in table)
    given = table if is_response else table_in(table, "response")
    if given is None:
        return fetched
    if fetched.ok and fetched.response:
        body = text_in(given, "body")
        return fetched if body is None else replace(fetched, response=replace(fetched.response, body=body))
    response = _response_in(given, fetched.response or Response(status=200, body=b"", url=fetched.request.url))
    return replace(fetched, response=response)


def _response_in(table: Mapping[object, object], otherwise: Response) -> Response:
    status, body = value_in(table, "status", read_integer), text_in(table, "body")
    headers = texts_in(table, "headers")
    return Response(
        status=otherwise.status if status is None else status,
        body=otherwise.body if body is None else body,
        url=text_in(table, "url") or otherwise.url,
        headers=otherwise.headers if headers is None else {name.lower(): text for name, text in headers.items()},
        time_ms=otherwise.time_ms,
        proxy=text_in(table, "proxy") or otherwise.proxy,
    )


def warning_about(hook: str, value: object) -> str:
    """Say which parts of a hook's table are ignored; return an empty text where none is."""
    if hook not in EXPECTED or not isinstance(value, Mapping):
        return ""
    expected, known = EXPECTED[hook]
    response = value.get(b"response") if hook == "after_fetch" else None
    if isinstance(response, Mapping):
        return _warning(value, "what it returned", "", known) or _warning(response, "its 'response'", *A_RESPONSE)
    return _warning(value, "what it returned", expected, known)


def _warning(table: Mapping[object, object], what: str, expected: str, known: Sequence[str]) -> str:
    strange = [key for key in table if not isinstance(key, bytes) or key.decode("utf-8", "replace") not in known]
    for name in strange[:MOST]:
        if isinstance(name, bytes) and len(name) <= LONGEST:
            shown = name.decode("utf-8", "replace")
            meant = Names(known).nearest(shown, LIKENESS)
            if meant is not None:
                return f"unknown name {shown!r} in {what}: did you mean {meant!r}?"
    return f"nothing in {what} belongs to {expected}" if expected and len(strange) == len(table) else ""
