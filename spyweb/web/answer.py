"""How every resource reads its parameters and writes its answer."""

from __future__ import annotations

from aiohttp import web

from spyweb.model import JobId
from spyweb.views.jobs import to_json
from spyweb.web.keys import SERVICE

MOST = (1 << 63) - 1  # the largest number that the store takes
NDJSON = {"Content-Type": "application/x-ndjson"}


class WholeAnswer(web.Response):
    """Of which nothing stays behind when whoever asked hangs up before it has all left.

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


async def begin_lines(request: web.Request) -> web.StreamResponse:
    """An answer of one JSON object a line."""
    response = web.StreamResponse(headers=NDJSON)
    await response.prepare(request)
    return response


def job_in_path(request: web.Request) -> JobId:
    return _find(request, request.match_info["job"])


def job_in_query(request: web.Request) -> JobId | None:
    name = request.query.get("job")
    return None if name is None else _find(request, name)


def _find(request: web.Request, name_or_id: str) -> JobId:
    service = request.app[SERVICE]
    job = service.find(name_or_id)
    if job is None:
        raise web.HTTPNotFound(text=service.no_such_job(name_or_id))
    return job


def number_in_query(request: web.Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise web.HTTPBadRequest(text=f"{name}: expected a whole number from {least} to {most}")
    return int(text)
