"""Answer requests in JSON: with a value, or with an error and its status.

An error is `{"error": text}`, and beside it `"code"` when it is one of spyweb's own.  A bug is logged with its
traceback and told to nobody else.
"""

from __future__ import annotations

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from spyweb.errors import (
    ConfigError,
    FetchError,
    LockHeld,
    NoAccess,
    OpError,
    PoolError,
    Refused,
    ScriptError,
    SpywebError,
    StoreError,
)
from spyweb.stalls import Work, work_for
from spyweb.views.jobs import to_json

log = structlog.get_logger()

PATH_SHOWN = 100  # characters, of whoever held up the loop

STATUS: dict[type[SpywebError], tuple[int, str]] = {
    ConfigError: (422, "config"),
    ScriptError: (422, "script"),
    OpError: (400, "op"),
    FetchError: (502, "fetch"),
    StoreError: (503, "store"),
    LockHeld: (409, "lock_held"),
    NoAccess: (403, "no_access"),
    PoolError: (503, "pool"),
    Refused: (409, "refused"),
    SpywebError: (500, "spyweb"),
}


class WholeAnswer(web.Response):
    """A response whose memory is freed as soon as its client hangs up.

    aiohttp's error then holds the frame that waited, and that frame the error: a circle, with the whole body in it. It
    waits for the collector, which in the daemon seldom comes by (daemon/serve.py).
    """

    async def write_eof(self, data: bytes = b"") -> None:
        try:
            await super().write_eof(data)
        except ConnectionError as error:
            raise error.with_traceback(None) from None


def json_answer(value: object, status: int = 200) -> web.Response:
    return WholeAnswer(body=to_json(value), status=status, content_type="application/json")


def status_of(error: SpywebError) -> tuple[int, str]:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def describe(error: SpywebError) -> dict[str, str]:
    return {"error": str(error), "code": status_of(error)[1]}


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error of a request into an answer, and name the request to the event loop's watchdog."""
    work_for(Work(f"{request.method} {request.path[:PATH_SHOWN]}"))
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _http_answer(error)
    except SpywebError as error:
        return json_answer(describe(error), status_of(error)[0])
    except web.RequestPayloadError:
        return json_answer({"error": "the body is not what its headers say"}, 400)
    except Exception as error:
        if isinstance(error, ConnectionError) and _is_gone(request):
            return web.Response()  # nobody reads it
        log.error("a bug in the HTTP server", method=request.method, path=request.path, exc_info=error)
        return json_answer({"error": "Internal Server Error"}, 500)


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _http_answer(error: web.HTTPException) -> web.Response:
    default = f"{error.status}: {error.reason}"
    text = error.text if error.text and error.text != default else error.reason
    answer = json_answer({"error": text}, error.status)
    if "Allow" in error.headers:
        answer.headers["Allow"] = error.headers["Allow"]
    return answer
