"""Read the parameters of an address: the job, numbers, and names of scripts, which may be any bytes."""

from __future__ import annotations

from urllib.parse import parse_qsl

from aiohttp import web

from spyweb.model import JobId, RunId
from spyweb.web.api.keys import SERVICE

MOST = (1 << 63) - 1  # the largest number that the store takes


def job_in_path(request: web.Request) -> JobId:
    return _find_job(request, request.match_info["job"])


def run_in_path(request: web.Request) -> RunId:
    text = request.match_info["run"]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MOST):
        raise web.HTTPBadRequest(text="expected the number of a run")
    return RunId(int(text))


def job_in_query(request: web.Request) -> JobId | None:
    name = request.query.get("job")
    return None if name is None else _find_job(request, name)


def _find_job(request: web.Request, name_or_id: str) -> JobId:
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


def text_in_query(request: web.Request, name: str, default: str | None = None) -> str:
    found = bytes_in_query(request, name, None if default is None else default.encode())
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise web.HTTPBadRequest(text=f"{name}: expected UTF-8") from error


def bytes_in_query(request: web.Request, name: str, default: bytes | None = None) -> bytes:
    """Return the last value of this name, undecoded: `request.query` holds decoded text."""
    raw = request.rel_url.raw_query_string
    pairs = parse_qsl(raw, keep_blank_values=True, encoding="utf-8", errors="surrogateescape")
    found = dict(pairs).get(name)
    if found is not None:
        return found.encode("utf-8", "surrogateescape")
    if default is None:
        raise web.HTTPBadRequest(text=f"{name}: is missing")
    return default
