"""Answer requests in JSON: with a value, or with an error and its status.

An error is `{"error", "code", "message", "field"}`: `error` and `message` are the same text, the first for clients of
SpyWeb, and `field` is the name of the parameter or part of a body that is wrong.  A browser gets it as a page.  An
unexpected exception is logged with its traceback, and the client gets no details.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from spyweb import errors
from spyweb.errors import SpywebError
from spyweb.stalls import Work, work_for
from spyweb.views.jobs import to_json

log = structlog.get_logger()

HANDED_ON = ("Allow", "Location", "Retry-After")  # headers of an error that mean something to its reader

STATUS: dict[type[SpywebError], tuple[int, str]] = {
    errors.ConfigError: (422, "config"),
    errors.ScriptError: (422, "script"),
    errors.OpError: (400, "op"),
    errors.FetchError: (502, "fetch"),
    errors.StoreError: (503, "store"),
    errors.LockHeld: (409, "lock_held"),
    errors.NoAccess: (403, "no_access"),
    errors.PoolError: (503, "pool"),
    errors.KeyReused: (422, "key_reused"),
    errors.Refused: (409, "refused"),
    errors.Absent: (404, "not_found"),
    SpywebError: (500, "spyweb"),
}

# The codes of what the server itself refuses.
CODES: Mapping[int, str] = {
    400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "too_slow", 409: "refused", 413: "too_large", 414: "too_long", 415: "unsupported", 417: "bad_request",
    422: "invalid", 429: "too_many_requests", 500: "internal", 503: "busy",
}  # fmt: skip

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{status} {title}</title>
<h1>{title}</h1>
<p>{text}</p>
</html>
"""
ERROR_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that failed."""

    error: str  # the same as `message`, as SpyWeb names it
    code: str
    message: str
    field: str | None = None  # the parameter, or the part of the body, that is wrong


class BadParameter(web.HTTPBadRequest):
    """A parameter of the address is missing or invalid."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(text=f"{field}: {reason}")
        self.field = field


class BadBody(web.HTTPUnprocessableEntity):
    """A body is JSON, but invalid."""

    def __init__(self, field: str | None, reason: str) -> None:
        super().__init__(text=f"{field}: {reason}" if field else reason)
        self.field = field


class WholeAnswer(web.Response):
    """A response whose memory is freed as soon as it is sent, or its client hangs up.

    aiohttp keeps a response until the next request of its connection.  Its error for a client that disconnected holds
    the frame that waited, and that frame holds the error: a reference cycle with the whole body in it, which waits for
    the garbage collector; in the daemon that runs seldom (daemon/serve.py).
    """

    async def write_eof(self, data: bytes = b"") -> None:
        try:
            await super().write_eof(data)
            self.body = None
        except ConnectionError as error:
            raise error.with_traceback(None) from None


def bytes_answer(request: web.Request, whole: bytes, zipped: bytes, headers: Mapping[str, str]) -> web.Response:
    """Answer with bytes, or with the same compressed where the client takes that."""
    headers = {**headers, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        whole, headers["Content-Encoding"] = zipped, "gzip"
    return WholeAnswer(body=whole, headers=headers)


def json_answer(value: object, status: int = 200) -> web.Response:
    return WholeAnswer(body=to_json(value), status=status, content_type="application/json")


def page_answer(request: web.Request, value: object, **following: object) -> web.Response:
    """Answer with a page; the header `Link` leads to the next one, by these parameters, unless they are None."""
    answer = json_answer(value)
    if None not in following.values():
        query = request.rel_url.update_query({name: str(each) for name, each in following.items()}).raw_query_string
        answer.headers["Link"] = f'<?{query}>; rel="next"'
    return answer


def status_of(error: SpywebError) -> tuple[int, str]:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def describe(error: SpywebError) -> ErrorAnswer:
    return error_of(str(error), status_of(error)[1])


def error_of(text: str, code: str, field: str | None = None) -> ErrorAnswer:
    return ErrorAnswer(error=text, code=code, message=text, field=field)


def error_answer(request: web.Request, status: int, error: ErrorAnswer) -> web.Response:
    """Answer with an error: as JSON, or as a page where a browser has asked for one."""
    if wants_page(request):
        title = error.code.replace("_", " ").capitalize()
        text = PAGE.format(status=status, title=escape(title), text=escape(error.message))
        answer: web.Response = WholeAnswer(text=text, status=status, content_type="text/html", headers=ERROR_HEADERS)
    else:
        answer = json_answer(error, status)
    if status == web.HTTPServiceUnavailable.status_code:
        answer.force_close()  # a client that was refused must not hold a connection until it tries again
    return answer


def wants_page(request: web.Request) -> bool:
    """Return whether a browser shows the answer to a person; scripts of pages ask for other types."""
    return "text/html" in request.headers.get("Accept", "")


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error of a request into an answer, and name the request for the event loop's watchdog."""
    work_for(Work(f"{request.method} {request.path[:100]}"))
    try:
        return await handler(request)
    except web.HTTPException as error:
        text = error.text if error.text and error.text != f"{error.status}: {error.reason}" else error.reason
        code = CODES.get(error.status, f"http_{error.status}")
        answer = error_answer(request, error.status, error_of(text, code, getattr(error, "field", None)))
        answer.headers.update({name: error.headers[name] for name in HANDED_ON if name in error.headers})
        return answer
    except SpywebError as error:
        return error_answer(request, status_of(error)[0], describe(error))
    except web.RequestPayloadError:
        return error_answer(request, 400, error_of("the body does not match its headers", CODES[400]))
    except Exception as error:
        if isinstance(error, ConnectionError) and (request.transport is None or request.transport.is_closing()):
            return web.Response()  # the client has disconnected
        log.error("a bug in the HTTP server", method=request.method, path=request.path, exc_info=error)
        return error_answer(request, 500, error_of("Internal Server Error", CODES[500]))
