"""Handlers for stored values and locks: look, change, export, import, watch.

A key or pattern is a parameter of percent-encoded bytes, which need not be UTF-8.  A value is a body, in the form of
store/interchange/value_json.py.  Long answers are one JSON object a line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing

import msgspec
from aiohttp import web

from spyweb.limits import OP_ELEMENTS, SOCKET_BODY
from spyweb.model import JobId, Value
from spyweb.service.state import StateService
from spyweb.settings.units import LONGEST_MS
from spyweb.store.interchange.lines import BadLine, LineReader, entry_line, find_namespace
from spyweb.store.interchange.value_json import decode_value
from spyweb.store.patterns import excess
from spyweb.store.records_protocol import NewRecord
from spyweb.store.values_protocol import STATE, PortableEntry
from spyweb.views.jobs import to_json
from spyweb.views.state import EntryView
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import SERVICE
from spyweb.web.api.query import MOST, bytes_in_query, number_in_query, text_in_query
from spyweb.web.api.streams import counted, stream
from spyweb.web.body import BODY_MEMORY, Body, pieces

BATCH = 1 << 18  # bytes of lines parsed at a time


def state_of(request: web.Request) -> StateService:
    return request.app[SERVICE].state


async def list_entries(request: web.Request) -> web.StreamResponse:
    limit = number_in_query(request, "limit", 0, least=0, most=MOST) or None
    entries = state_of(request).entries(_namespace(request), bytes_in_query(request, "prefix", b""), limit)
    return await stream(request, counted(to_json(entry) + b"\n" async for entry in entries))


async def read_entry(request: web.Request) -> web.Response:
    return _found(await state_of(request).entry(_namespace(request), bytes_in_query(request, "key")))


async def put_entry(request: web.Request) -> web.Response:
    ttl_ms = number_in_query(request, "ttl_ms", 0, least=0, most=LONGEST_MS) or None
    with closing(Body(request.app[BODY_MEMORY], SOCKET_BODY)) as body:
        value = await asyncio.to_thread(_value, await body.read(request), _most_values(request))
    created = await state_of(request).put(_namespace(request), bytes_in_query(request, "key"), value, ttl_ms)
    return json_answer({"created": created})


async def delete_entry(request: web.Request) -> web.Response:
    return json_answer({"deleted": await state_of(request).delete(_namespace(request), bytes_in_query(request, "key"))})


async def count_entries(request: web.Request) -> web.Response:
    pattern = _pattern(request)
    return json_answer({"count": await state_of(request).count(_namespace(request), pattern)})


async def clear_entries(request: web.Request) -> web.Response:
    pattern = _pattern(request)
    return json_answer({"deleted": await state_of(request).clear(_namespace(request), pattern)})


async def show_stats(request: web.Request) -> web.Response:
    return json_answer(await state_of(request).stats(_maybe_namespace(request)))


async def list_history(request: web.Request) -> web.Response:
    limit = number_in_query(request, "limit", 0, least=0, most=MOST) or None
    return json_answer(await state_of(request).history(_namespace(request), bytes_in_query(request, "key"), limit))


async def roll_back(request: web.Request) -> web.Response:
    version = number_in_query(request, "version", 0, least=0, most=MOST)
    created = await state_of(request).rollback(_namespace(request), bytes_in_query(request, "key"), version)
    return json_answer({"created": created})


async def list_locks(request: web.Request) -> web.Response:
    return json_answer(await state_of(request).locks())


async def break_lock(request: web.Request) -> web.Response:
    return json_answer({"broken": await state_of(request).break_lock(bytes_in_query(request, "name"))})


async def export_entries(request: web.Request) -> web.StreamResponse:
    entries = state_of(request).export(_maybe_namespace(request))
    return await stream(request, counted(entry_line(portable) async for portable in entries))


async def import_entries(request: web.Request) -> web.Response:
    """Import the entries of an export, which is the body."""
    dry_run = text_in_query(request, "dry_run", "") == "true"
    entries = await _read_entries(request)
    return json_answer(await state_of(request).load(entries, dry_run=dry_run))


async def add_records(request: web.Request) -> web.Response:
    """Add records that another program has found: the body is a JSON array of them."""
    with closing(Body(request.app[BODY_MEMORY], SOCKET_BODY)) as body:
        records = await asyncio.to_thread(_records, await body.read(request))
    job = JobId(text_in_query(request, "job"))
    return json_answer({"added": await state_of(request).add_records(job, records)})


async def move_entries(request: web.Request) -> web.Response:
    old, new = (_checked(text_in_query(request, name)) for name in ("old", "new"))
    return json_answer(await state_of(request).move(old, new))


async def watch_changes(request: web.Request) -> web.StreamResponse:
    """Send each change as it comes, without end.  The first line is blank: from then on nothing is missed.

    Other blank lines are signs of life.
    """
    async with aclosing(state_of(request).watch(_maybe_namespace(request), _pattern(request))) as changes:
        return await stream(request, ((to_json(change) if change else b"") + b"\n" async for change in changes))


def _namespace(request: web.Request) -> str:
    return _checked(text_in_query(request, "namespace", STATE))


def _pattern(request: web.Request) -> bytes:
    pattern = bytes_in_query(request, "pattern", b"*")
    if (reason := excess(pattern)) is not None:
        raise web.HTTPBadRequest(text=f"pattern: {reason}")
    return pattern


def _maybe_namespace(request: web.Request) -> str | None:
    """Return the namespace that is asked for; None for all of them."""
    name = text_in_query(request, "namespace", "")
    return _checked(name) if name else None


def _checked(name: str) -> str:
    namespace = find_namespace(name)
    if namespace is None:
        raise web.HTTPBadRequest(text=f"{name!r} is no namespace")
    return namespace


def _found(entry: EntryView | None) -> web.Response:
    return json_answer({"entry": entry})


def _most_values(request: web.Request) -> int:
    """Return how many values a value may hold: each takes a byte at least, unless a script had it stored."""
    return max(state_of(request).limits.max_value_bytes, OP_ELEMENTS)


def _records(body: bytes) -> list[NewRecord]:
    try:
        return msgspec.json.decode(body, type=list[NewRecord])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise web.HTTPBadRequest(text=f"records: {error}") from error


def _value(body: bytes, most: int) -> Value:
    try:
        return decode_value(body, most)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"the value {error}") from error


async def _read_entries(request: web.Request) -> list[PortableEntry]:
    """Parse a body in a thread, many lines at a time."""
    reader = LineReader(_most_values(request))
    entries: list[PortableEntry] = []
    try:
        async with aclosing(_line_batches(request)) as batches:
            async for lines in batches:
                entries += await asyncio.to_thread(_read_batch, reader, lines)
    except BadLine as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    return entries


def _read_batch(reader: LineReader, lines: list[bytes]) -> list[PortableEntry]:
    return [portable for line in lines if (portable := reader.read(line)) is not None]


async def _line_batches(request: web.Request) -> AsyncGenerator[list[bytes], None]:
    """Yield the whole lines of a body; one may be as long as a body of another request."""
    with closing(Body(request.app[BODY_MEMORY], SOCKET_BODY, "a line")) as room:
        batch: list[bytes] = []
        rest: list[bytes] = []
        size = 0
        async with aclosing(pieces(request)) as found:
            async for piece in found:
                room.take(len(piece))
                first, *more = piece.split(b"\n")
                rest.append(first)
                for line in more:
                    batch.append(b"".join(rest))
                    rest = [line]
                size += len(piece)
                if batch and size >= BATCH:
                    yield batch
                    batch, size = [], 0
                    room.close()
                    room.take(sum(map(len, rest)))
        batch.append(b"".join(rest))
        yield batch
