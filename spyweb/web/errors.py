"""spyweb's errors as HTTP: one table of statuses, one JSON shape.

The shape is `{"error": text}`, and beside it `"code"` when the error is one of spyweb's own.  A bug is logged with
its traceback and told to nobody else.
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
from spyweb.web.answer import json_answer

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


def status_of(error: SpywebError) -> tuple[int, str]:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def describe(error: SpywebError) -> dict[str, str]:
    return {"error": str(error), "code": status_of(error)[1]}


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    work_for(Work(f"{request.method} {request.path[:PATH_SHOWN]}"))
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - boundary: one web request
        return answer_for(error, request)


def answer_for(error: Exception, request: web.Request) -> web.Response:
    """What a request is told that came to this."""
    match error:
        case web.HTTPException():
            return _http_answer(error)
        case SpywebError():
            return json_answer(describe(error), status_of(error)[0])
        case ConnectionError() if _has_gone(request):
            return web.Response()  # to nobody
        case web.RequestPayloadError():
            return json_answer({"error": "the body is not what its headers say"}, 400)
    log.error("a bug in the HTTP server", method=request.method, path=request.path, exc_info=error)
    return json_answer({"error": "Internal Server Error"}, 500)


def _has_gone(request: web.Request) -> bool:
    """Whoever asked."""
    return request.transport is None or request.transport.is_closing()


def _http_answer(error: web.HTTPException) -> web.Response:
    default = f"{error.status}: {error.reason}"
    text = error.text if error.text and error.text != default else error.reason
    answer = json_answer({"error": text}, error.status)
    if "Allow" in error.headers:
        answer.headers["Allow"] = error.headers["Allow"]
    return answer
