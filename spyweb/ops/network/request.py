"""One HTTP request as a value, and the checks that keep a script's text from becoming part of the protocol.

A refusal here is an error `{kind = "http"}` (or `"proxy"`), like any other request that can't succeed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import quote

from msgspec import Struct, field
from yarl import URL

from spyweb import limits
from spyweb.errors import FetchError
from spyweb.limits import AUTHORITY, HEADER_BLOCK, HEADERS, HOST, METHOD, too_large
from spyweb.model import MIB
from spyweb.ops.network.address_check import NetGate
from spyweb.settings.sections import HttpSettings
from spyweb.tracing.span import TRACEPARENT, current_traceparent

MOST_REDIRECTS = 10
LARGEST_OPTION = 86_400.0  # seconds, or MB: more than any run or VM has
SCHEMES = ("http", "https")
SOCKS_SCHEMES = ("socks4", "socks4a", "socks5", "socks5h")
PROXY_SCHEMES = (*SCHEMES, *SOCKS_SCHEMES)
NO_URL = (ValueError, IndexError)  # yarl's errors; the latter for `http://[]@`

# As yarl parses an address: it drops these characters first.
_DROPPED = dict.fromkeys(map(ord, "\t\r\n"))
_BEFORE = "".join(map(chr, range(0x21)))
_AUTHORITY = re.compile(r"(?:[A-Za-z0-9+.-]*:)?//([^/?#]*)")

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_KEPT_IN_QUERY = "!$%&()*+,-./:;=?@[\\]^_`{|}~"  # beside letters and digits; browsers escape the rest
# The client sets these itself: it knows the body, and does not wait for `100 Continue`, which many servers don't send.
_OURS = frozenset({"content-length", "transfer-encoding", "expect"})


class FetchRequest(Struct, frozen=True, kw_only=True):
    """A request as a script wrote it: its types are checked, its contents not yet."""

    url: bytes
    method: bytes = b"GET"
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    body: bytes | None = None
    timeout_s: int | float | None = None
    proxy: bytes | None = None  # empty: none, with any settings of the job
    max_body_size: int | float | None = None  # MB


class Fetch(Struct, frozen=True, kw_only=True):
    """A request to be sent."""

    url: URL
    timeout_s: float  # for all of it: connecting, redirects, and the body if it must be complete
    largest: int  # bytes of the body, after decompression
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    proxy: URL | None = None
    gate: NetGate | None = None  # what asks the policy of the job; None: the request is of no job
    follow: bool = True  # redirects
    whole: bool = True  # False: only the status matters; of the body comes what is available, up to `largest`


class Response(Struct, frozen=True, kw_only=True):
    """A response of any status, with as much of its body as was requested; hooks of monitors make some."""

    status: int
    body: bytes
    url: bytes  # after redirects
    headers: Mapping[bytes, bytes] = field(default_factory=dict)  # names in lower case, repeats joined
    time_ms: int | None = None
    ip: bytes | None = None  # of the last hop, or of its proxy
    redirects: int | None = None
    proxy: bytes | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Probe(Struct, frozen=True, kw_only=True):
    """A question to a server below HTTP."""

    function: str  # the op that asks
    host: str  # of dns_query the name in question
    port: int
    timeout: float  # seconds, for all of it; of ping for each reply
    send: bytes = b""
    read: int = 0  # bytes of the first line of the answer; 0: it is not awaited
    tls: bool = False
    server: str = ""  # a name server; empty: those of this machine
    type: str = ""  # of records
    count: int = 0


class Http(Protocol):
    """The HTTP client as ops and monitors see it."""

    @property
    def settings(self) -> HttpSettings: ...

    async def fetch(self, fetch: Fetch) -> Response:
        """Send a request and read the reply.  Raises FetchError."""

    async def probe(self, probe: Probe, gate: NetGate | None = None) -> dict[str, object]:
        """Return what a server answers below HTTP.  Raises FetchError."""


def fetch_of(request: FetchRequest, settings: HttpSettings, most: int | None, gate: NetGate | None = None) -> Fetch:
    """Check a request and return it ready to send; `most` bytes are accepted.  Raises FetchError.

    Where the gate does not permit it, that is NotPermitted.
    """
    size, timeout_s = request.max_body_size, request.timeout_s
    largest = settings.max_body_size if size is None else int(min(size, LARGEST_OPTION) * MIB)
    fetch = Fetch(
        url=parse_url(request.url),
        method=parse_method(request.method),
        headers=with_trace(clean_headers(request.headers)),
        body=request.body,
        proxy=parse_proxy(request.proxy) if request.proxy else None,
        timeout_s=settings.timeout_ms / 1000 if timeout_s is None else min(timeout_s, LARGEST_OPTION),
        largest=largest if most is None else min(largest, most),
        gate=gate,
    )
    check(fetch)
    return fetch


def check(fetch: Fetch) -> None:
    """Ask the policy of the job about all hosts that a request names.  Raises NotPermitted."""
    if fetch.gate is not None:
        claimed = next((value for name, value in fetch.headers.items() if name.lower() == "host"), None)
        fetch.gate.check_request(fetch.url, fetch.proxy, claimed)


def parse_url(text: bytes) -> URL:
    """Parse the address of a request.  Raises FetchError."""
    text = text.strip(b" ")
    return as_written(_parse(text, "http", "URL", SCHEMES), text.decode("utf-8"))


def parse_proxy(text: bytes) -> URL:
    """Parse the address of a proxy.  Raises FetchError."""
    return _parse(text, "proxy", "proxy", PROXY_SCHEMES)


def as_written(url: URL, text: str) -> URL:
    """Return the address with its query unchanged: yarl would undo escapes that a signature may cover."""
    _, mark, query = text.partition("#")[0].partition("?")
    if not mark:
        return url
    return URL.build(
        scheme=url.scheme,
        authority=url.raw_authority,
        path=url.raw_path,
        query_string=quote(query, safe=_KEPT_IN_QUERY),
        fragment=url.raw_fragment,
        encoded=True,
    )


def without_password(url: URL) -> str:
    """Return the address without user and password, for the log."""
    return str(url.with_user(None)) if url.raw_host else str(url)  # `host` raises where a label is bad punycode


def _parse(text: bytes, kind: str, what: str, schemes: Sequence[str]) -> URL:
    if len(text) > limits.URL or _UNSAFE.search(text):
        raise FetchError(kind, f"bad {what}: too long, or with control characters in it")
    try:
        url = read_url(text.decode("utf-8"))
        if url.scheme not in schemes:
            raise ValueError(f"it must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        if not url.raw_host:
            raise ValueError("it names no host")
    except NO_URL as error:
        reason = str(error) if isinstance(error, ValueError) else "it names no host"
        raise FetchError(kind, f"bad {what}: {reason}") from None
    return url


def read_url(text: str) -> URL:
    """Parse an address.  Raises one of NO_URL.

    Its names are measured before they are encoded or normalized, which takes time with the square of their length.
    """
    check_authority(text)
    url = URL(text)
    check_name(url.raw_host or "")  # a name may be longer once it is encoded
    return url


def check_authority(url: str) -> None:
    """Raise ValueError if the host in an address is longer than any name."""
    found = _AUTHORITY.match(url.translate(_DROPPED).lstrip(_BEFORE))
    authority = found[1] if found else ""
    check_name(authority.rpartition("@")[2].partition(":")[0])
    if not authority.isascii() and len(authority) > AUTHORITY:
        raise ValueError(too_large("the authority of a URL", len(authority), AUTHORITY, "characters"))


def check_name(host: str) -> None:
    """Raise ValueError if a host name is longer than any name."""
    if len(host) > HOST:
        raise ValueError(too_large("a host name", len(host), HOST, "characters"))


def parse_method(text: bytes) -> str:
    """Check an HTTP method.  Raises FetchError."""
    method = text[: METHOD + 1].upper()
    if len(method) > METHOD or not _TOKEN.fullmatch(method) or method == b"CONNECT":
        raise FetchError("http", "bad method")
    return method.decode("ascii")


def clean_headers(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Check and return the headers to send.  Raises FetchError for one that could begin another header."""
    if len(headers) > HEADERS:
        raise FetchError("http", too_large("a request", len(headers), HEADERS, "headers"))
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > HEADER_BLOCK:
        raise FetchError("http", too_large("the header block of a request", size, HEADER_BLOCK))
    cleaned = {}
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise FetchError("http", f"bad header name {name[:80].decode('utf-8', 'replace')!r}")
        if _UNSAFE.search(value):
            raise FetchError("http", f"header {name.decode()} has control characters in it")
        if name.decode().lower() not in _OURS:
            cleaned[name.decode()] = _header_text(name, value)
    return cleaned


def with_trace(headers: dict[str, str]) -> dict[str, str]:
    """Add the header of the trace that a request belongs to, unless it has one of its own."""
    traceparent = current_traceparent()
    if not traceparent or any(name.lower() == TRACEPARENT for name in headers):
        return headers
    return {**headers, TRACEPARENT: traceparent}


def with_defaults(headers: Mapping[bytes, bytes], settings: HttpSettings) -> dict[bytes, bytes]:
    """Add those of `[http] headers` that a request has not set itself."""
    given = {name.lower() for name in headers}
    usual = {name.encode(): value.encode() for name, value in settings.headers}
    return {**{name: value for name, value in usual.items() if name.lower() not in given}, **headers}


def _header_text(name: bytes, value: bytes) -> str:
    try:
        return value.strip(b" \t").decode("utf-8")
    except UnicodeDecodeError:
        raise FetchError("http", f"header {name.decode()} is not UTF-8") from None
