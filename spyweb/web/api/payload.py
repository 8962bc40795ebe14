"""Read the JSON that is sent along with a run: a script will see it, so it is held to what Lua can hold."""

from __future__ import annotations

from contextlib import closing

from aiohttp import web

from spyweb.limits import SCRIPT_VALUES
from spyweb.store.interchange.value_json import decode_json, number_of
from spyweb.web.body import BODY_MEMORY, Body

DEEPEST = 60  # tables in tables


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
