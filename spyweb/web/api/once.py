"""Read the Idempotency-Key of a request, and answer with the run that it has started, now or before."""

from __future__ import annotations

from aiohttp import web

from spyweb.limits import IDEMPOTENCY_KEY, too_large
from spyweb.service.once import StartedRun
from spyweb.tracing.span import TRACEPARENT, read_traceparent
from spyweb.views.jobs import Triggered
from spyweb.web.answer import BadParameter, json_answer
from spyweb.web.api.route import SERVICE

HEADER = "Idempotency-Key"
REPEATED = "Idempotent-Replayed"
HEADERS = {HEADER: "the same for each repetition of this request: only the first starts a run"}
REUSED = {422: "The Idempotency-Key was used for another request, or the body is not what it should be."}


def key_of(request: web.Request) -> str | None:
    """Return the key that the client has given this request.  Raises BadParameter for one that can't be."""
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
    if not request.app[SERVICE].is_traced:
        return ""
    return read_traceparent(request.headers.get(TRACEPARENT, ""))


def started_answer(started: StartedRun, status: int) -> web.Response:
    answer = json_answer(Triggered(run=started.run), status)
    if started.is_repeated:
        answer.headers[REPEATED] = "true"
    return answer
