"""Translate failures on the way to another machine into the `kind` of error that scripts know."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import aiohttp

from spyweb.errors import FetchError
from spyweb.ops.network.answer import REFUSED, in_one_line
from spyweb.ops.network.request import MOST_REDIRECTS, Fetch, without_password

LONGEST_SHOWN = 200  # of an address, which the other side chose
NO_HTTP = "Bad status line"  # how aiohttp's message begins; no type tells it

# In order: the first that fits decides, since aiohttp's errors have several parents.
_KINDS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError), "proxy"),
    ((aiohttp.ClientConnectorDNSError,), "dns"),
    ((aiohttp.ClientSSLError, ssl.SSLError), "tls"),
    ((TimeoutError,), "timeout"),
    ((aiohttp.InvalidURL, aiohttp.RedirectClientError, aiohttp.NonHttpUrlClientError), "http"),
    ((aiohttp.ClientResponseError, aiohttp.ClientPayloadError), "http"),
    ((aiohttp.ClientConnectionError, OSError), "connect"),
    ((aiohttp.ClientError,), "unknown"),
    ((ValueError,), "http"),  # aiohttp's word for a request that it would not send
)


@contextmanager
def translated(fetch: Fetch) -> Iterator[None]:
    """Translate the errors of foreign libraries into FetchError."""
    try:
        yield
    except FetchError as error:
        error.proxy = error.proxy or _proxy_of(fetch)
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise failure_of(error, fetch) from error


def failure_of(error: Exception, fetch: Fetch) -> FetchError:
    kind = next(kind for types, kind in _KINDS if isinstance(error, types))
    if kind == "dns" and fetch.proxy is not None:
        kind = "proxy"  # with a proxy, its name is the only one that is looked up here
    return FetchError(kind, _text_of(error, kind, fetch), url=without_password(fetch.url), proxy=_proxy_of(fetch))


def _proxy_of(fetch: Fetch) -> str | None:
    return None if fetch.proxy is None else without_password(fetch.proxy)


def _text_of(error: Exception, kind: str, fetch: Fetch) -> str:
    match error:
        case TimeoutError() if kind == "timeout":
            return f"no complete response within {fetch.timeout_s:g} s"
        case aiohttp.ClientConnectorDNSError():
            return f"could not resolve {error.host}: {_reason(error.os_error)}"
        case aiohttp.ClientSSLError():
            return f"TLS with {error.host} failed: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"could not connect to {error.host}:{error.port}: {_reason(error.os_error)}"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return f"bad URL: {str(error).removeprefix(REFUSED)[:LONGEST_SHOWN]}"
        case aiohttp.ClientResponseError():
            return _text_of_answer(error)
        case aiohttp.ServerDisconnectedError():
            return "the server closed without a whole answer"  # aiohttp shows what it has of the head
        case _:
            return str(error) or type(error).__name__


def _text_of_answer(error: aiohttp.ClientResponseError) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status} {in_one_line(error.message)}"
    if isinstance(error, aiohttp.TooManyRedirects):
        return f"too many redirects: more than {MOST_REDIRECTS}{_last_of(error.history)}"
    if error.message.startswith(NO_HTTP):
        return "the answer is not HTTP"
    return in_one_line(error.message)


def _last_of(history: Sequence[aiohttp.ClientResponse]) -> str:
    return f", the last at {without_password(history[-1].url)[:LONGEST_SHOWN]}" if history else ""


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
