"""Read the payload, Idempotency-Key and trace of a request that starts a run, and answer with the run.

A script will see the payload, so it must fit into Lua values.
"""

from __future__ import annotations

from contextlib import closing

from aiohttp import web

from spyweb.limits import IDEMPOTENCY_KEY, SCRIPT_VALUES, too_large
from spyweb.store.interchange.value_json import decode_json, number_of
from spyweb.subjects.runs.service import RunService, StartedRun
from spyweb.tracing.span import TRACEPARENT, read_traceparent
from spyweb.views.jobs import Triggered
from spyweb.web.answer import BadParameter, json_answer
from spyweb.web.api.services import service_of
from spyweb.web.body import BODY_MEMORY, Body

DEEPEST = 60  # tables in tables
HEADER = "Idempotency-Key"
REPEATED = "Idempotent-Replayed"
HEADERS = {HEADER: "the same for each repetition of this request: only the first starts a run"}
REUSED = {422: "The Idempotency-Key was used for another request, or the body is invalid."}


def key_of(request: web.Request) -> str | None:
    """Return the key that the client has given this request.  Raises BadParameter for an invalid one."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not key.strip() or not key.isprintable():
        raise BadParameter(HEADER, "expected printable text")
    if len(key) > IDEMPOTENCY_KEY:
        raise BadParameter(HEADER, too_large("it", len(key), IDEMPOTENCY_KEY, "characters"))
    return key


def parent_of(request: web.Request) -> str:
    """Return the trace that a request belongs to, where runs are traced."""
    if not service_of(request, RunService).is_traced:
        return ""
    return read_traceparent(request.headers.get(TRACEPARENT, ""))


def started_answer(started: StartedRun, status: int) -> web.Response:
    answer = json_answer(Triggered(run=started.run), status)
    if started.is_repeated:
        answer.headers[REPEATED] = "true"
    return answer


async def payload_of(request: web.Request, what: str = "a payload") -> object:
    """Return the body of a request, which may be any JSON; None where there is none."""
    if not request.can_read_body:
        return None
    with closing(Body(request.app[BODY_MEMORY], SCRIPT_VALUES, what)) as body:
        return read_payload(await body.read(request))


def read_payload(content: bytes, most: int | None = None) -> object:
    """Return the JSON of a body, of at most so many values; None for an empty one.  Raises HTTPBadRequest."""
    if not content:
        return None
    try:
        return _for_lua(decode_json(content, most), DEEPEST)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"the body {error}") from error


def _for_lua(value: object, depth: int) -> object:
    """Return the value with whole numbers beyond 64 bits as floats.  Raises ValueError where it is too deep."""
    match value:
        case bool():
            return value
        case int():
            return number_of(value)
        case list() | dict() if depth == 0:
            raise ValueError(f"is nested deeper than {DEEPEST} tables")
        case list():
            return [_for_lua(each, depth - 1) for each in value]
        case dict():
            return {name: _for_lua(each, depth - 1) for name, each in value.items()}
        case _:
            return value
