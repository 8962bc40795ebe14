"""Handlers for stored values and locks: read, change, export, import, watch.

A key or pattern is a parameter of percent-encoded bytes, which need not be UTF-8.  A value is a body, in the form of
store/interchange/value_json.py.  Long answers are one JSON object a line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.limits import OP_ELEMENTS
from spyweb.model import MIB, JobId
from spyweb.settings.units import LONGEST_MS
from spyweb.store.interchange.lines import BadLine, LineReader, entry_line, find_namespace
from spyweb.store.interchange.value_json import decode_value
from spyweb.store.model.entries import STATE, PortableEntry
from spyweb.store.model.records import NewRecord
from spyweb.store.patterns import excess
from spyweb.subjects.state import views
from spyweb.subjects.state.service import StateService
from spyweb.views.jobs import to_json
from spyweb.web.access.principal import check_may_see, check_may_see_all
from spyweb.web.answer import BadParameter, json_answer
from spyweb.web.api.query import Natural, Positive, body_of, query_of, read_body
from spyweb.web.api.route import LARGEST_BODY, LINES, Right, Route
from spyweb.web.api.services import service_of
from spyweb.web.body import BODY_MEMORY, Body, pieces
from spyweb.web.event_streams import UNREAD_S, counted, stream

UPDATE_BODY = 4 * MIB  # bytes of the ops of an update: they are parsed on the loop
BATCH = 1 << 18  # bytes of lines parsed at a time
ANY_VALUE = object  # any JSON

Namespace = Annotated[str, Meta(description="`state`, `global`, `job:ID` or `scope:NAME`")]


class EntriesQuery(Struct, frozen=True):
    """The entries of a namespace whose keys have a prefix."""

    namespace: Namespace = STATE
    prefix: bytes = b""
    limit: Natural = 0  # 0: all


class EntryQuery(Struct, frozen=True):
    """One entry."""

    key: bytes
    namespace: Namespace = STATE


class PutQuery(EntryQuery, frozen=True):
    """Where a value goes, and for how long."""

    ttl_ms: Annotated[int, Meta(ge=0, le=LONGEST_MS)] = 0  # 0: for ever


class PatternQuery(Struct, frozen=True):
    """The entries of a namespace whose keys match."""

    namespace: Namespace = STATE
    pattern: bytes = b"*"


class NamespaceQuery(Struct, frozen=True):
    """One namespace, or all."""

    namespace: Namespace = ""


class HistoryQuery(EntryQuery, frozen=True):
    """The versions of one entry."""

    limit: Natural = 0  # 0: all


class RollbackQuery(EntryQuery, frozen=True, kw_only=True):
    """The version that an entry gets again."""

    version: Positive


class LockQuery(Struct, frozen=True):
    """One lock."""

    name: bytes


class ImportQuery(Struct, frozen=True):
    """The choice between an import and a dry run."""

    dry_run: bool = False


class RecordsOfQuery(Struct, frozen=True):
    """The job that gets records."""

    job: str


class MoveQuery(Struct, frozen=True):
    """The namespaces that entries move from and to."""

    old: Namespace
    new: Namespace
    force: bool = False


class WatchQuery(PatternQuery, frozen=True):
    """The changes to watch."""

    namespace: Namespace = ""


def state_of(request: web.Request) -> StateService:
    return service_of(request, StateService)


@Route(
    "GET",
    "/api/state/entries",
    right=Right.READ,
    answer=(views.EntryView, views.StreamEnded),
    query=EntriesQuery,
    media=LINES,
    of_job=True,
)
async def list_entries(request: web.Request) -> web.StreamResponse:
    """List entries, sorted by key, bytewise."""
    query = query_of(request, EntriesQuery)
    entries = state_of(request).entries(_permitted(request, query.namespace), query.prefix, query.limit or None)
    return await stream(request, counted(to_json(entry) + b"\n" async for entry in entries))


@Route("GET", "/api/state/entry", right=Right.READ, answer=views.EntryFound, query=EntryQuery, of_job=True)
async def read_entry(request: web.Request) -> web.Response:
    """Show one entry."""
    query = query_of(request, EntryQuery)
    return json_answer(
        views.EntryFound(entry=await state_of(request).entry(_permitted(request, query.namespace), query.key))
    )


@Route(
    "PUT", "/api/state/entry", right=Right.STATE, answer=views.EntryWritten, query=PutQuery, body=ANY_VALUE, of_job=True
)
async def put_entry(request: web.Request) -> web.Response:
    """Write one entry, its expiry included."""
    query = query_of(request, PutQuery)
    namespace = _permitted(request, query.namespace)
    with closing(Body(request.app[BODY_MEMORY], request.app[LARGEST_BODY])) as body:
        encoded = await body.read(request)
        try:
            value = await asyncio.to_thread(decode_value, encoded, _most_values(request))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"the value {error}") from error
    return json_answer(await state_of(request).put(namespace, query.key, value, query.ttl_ms or None))


@Route(
    "PATCH",
    "/api/state/entry",
    right=Right.STATE,
    answer=views.EntryUpdated,
    query=EntryQuery,
    body=views.EntryUpdate,
    of_job=True,
)
async def update_entry(request: web.Request) -> web.Response:
    """Change a part of one entry, of a scope or of `state`, as `state.update` of a script does: all ops as one step.

    The ops are `set`, `merge`, `increment`, `decrement`, `append` and `remove`, each with a `path`.  An op that fails
    is listed in `errors`, and the others are done.  The expiry stays.
    """
    query = query_of(request, EntryQuery)
    namespace = _permitted(request, query.namespace)
    update = await body_of(request, views.EntryUpdate, UPDATE_BODY)
    return json_answer(await state_of(request).update(namespace, query.key, update.ops))


@Route("GET", "/api/state/namespaces", right=Right.READ, answer=list[views.NamespaceView])
async def list_namespaces(request: web.Request) -> web.Response:
    """List the namespaces that hold something."""
    return json_answer(await state_of(request).namespaces())


@Route("DELETE", "/api/state/entry", right=Right.STATE, answer=views.EntryDeleted, query=EntryQuery, of_job=True)
async def delete_entry(request: web.Request) -> web.Response:
    """Delete one entry."""
    query = query_of(request, EntryQuery)
    return json_answer(await state_of(request).delete(_permitted(request, query.namespace), query.key))


@Route("GET", "/api/state/count", right=Right.READ, answer=views.EntriesCounted, query=PatternQuery, of_job=True)
async def count_entries(request: web.Request) -> web.Response:
    """Count the entries whose keys match a pattern."""
    namespace, pattern = _matching(request, query_of(request, PatternQuery))
    return json_answer(await state_of(request).count(namespace, pattern))


@Route("DELETE", "/api/state/entries", right=Right.STATE, answer=views.EntriesCleared, query=PatternQuery, of_job=True)
async def clear_entries(request: web.Request) -> web.Response:
    """Delete the entries whose keys match a pattern."""
    namespace, pattern = _matching(request, query_of(request, PatternQuery))
    return json_answer(await state_of(request).clear(namespace, pattern))


@Route("GET", "/api/state/stats", right=Right.READ, answer=views.StateStats, query=NamespaceQuery, of_job=True)
async def show_stats(request: web.Request) -> web.Response:
    """Show the number and size of the entries of a namespace, or of all."""
    return json_answer(await state_of(request).stats(_one_or_all(request, query_of(request, NamespaceQuery).namespace)))


@Route("GET", "/api/state/history", right=Right.READ, answer=list[views.EntryView], query=HistoryQuery, of_job=True)
async def list_history(request: web.Request) -> web.Response:
    """List the stored versions of an entry, newest first; the first of a live entry is its current value."""
    query = query_of(request, HistoryQuery)
    return json_answer(
        await state_of(request).history(_permitted(request, query.namespace), query.key, query.limit or None)
    )


@Route("POST", "/api/state/rollback", right=Right.STATE, answer=views.EntryWritten, query=RollbackQuery, of_job=True)
async def roll_back(request: web.Request) -> web.Response:
    """Write the value of an earlier version as a new one without expiry."""
    query = query_of(request, RollbackQuery)
    return json_answer(await state_of(request).rollback(_permitted(request, query.namespace), query.key, query.version))


@Route("GET", "/api/state/locks", right=Right.READ, answer=list[views.LockView])
async def list_locks(request: web.Request) -> web.Response:
    """List the locks that are held."""
    return json_answer(await state_of(request).locks())


@Route("DELETE", "/api/state/locks", right=Right.STATE, answer=views.LockBroken, query=LockQuery)
async def break_lock(request: web.Request) -> web.Response:
    """Release a lock; the run that holds it is not interrupted."""
    return json_answer(await state_of(request).break_lock(query_of(request, LockQuery).name))


@Route(
    "GET", "/api/state/export", right=Right.READ, answer=(ANY_VALUE,), query=NamespaceQuery, media=LINES, of_job=True
)
async def export_entries(request: web.Request) -> web.StreamResponse:
    """Export entries for an import, and a last line with their count."""
    entries = state_of(request).export(_one_or_all(request, query_of(request, NamespaceQuery).namespace))
    return await stream(request, counted(entry_line(portable) async for portable in entries))


@Route(
    "POST",
    "/api/state/import",
    right=Right.STATE,
    answer=views.Imported,
    query=ImportQuery,
    body=(ANY_VALUE,),
    body_media=LINES,
)
async def import_entries(request: web.Request) -> web.Response:
    """Import the entries of an export, which is the body: all of them or none."""
    query = query_of(request, ImportQuery)
    entries = await _read_entries(request)
    return json_answer(await state_of(request).load(entries, dry_run=query.dry_run))


@Route(
    "POST",
    "/api/state/records",
    right=Right.STATE,
    answer=views.RecordsAdded,
    query=RecordsOfQuery,
    body=list[NewRecord],
    of_job=True,
)
async def add_records(request: web.Request) -> web.Response:
    """Add records that another program has found: the body is a JSON array of them."""
    job = JobId(query_of(request, RecordsOfQuery).job)
    check_may_see(request, job)
    with closing(Body(request.app[BODY_MEMORY], request.app[LARGEST_BODY])) as body:
        records = await asyncio.to_thread(read_body, await body.read(request), list[NewRecord])
    return json_answer(await state_of(request).add_records(job, records))


@Route("POST", "/api/state/move", right=Right.STATE, answer=views.Moved, query=MoveQuery, of_job=True)
async def move_entries(request: web.Request) -> web.Response:
    """Move one namespace's entries to another, a job's records with them; `force` replaces keys that are there."""
    query = query_of(request, MoveQuery)
    old, new = _permitted(request, query.old, "old"), _permitted(request, query.new, "new")
    return json_answer(await state_of(request).move(old, new, force=query.force))


@Route("GET", "/api/state/watch", right=Right.READ, answer=views.ChangeView, query=WatchQuery, media=LINES, of_job=True)
async def watch_changes(request: web.Request) -> web.StreamResponse:
    """Send each change as it comes, without end.  The first line is blank: from then on no change is missed.

    Other blank lines are signs of life.  A client that reads nothing for five minutes is disconnected.
    """
    query = query_of(request, WatchQuery)
    async with aclosing(
        state_of(request).watch(_one_or_all(request, query.namespace), _check_pattern(query.pattern))
    ) as changes:
        lines = ((to_json(change) if change else b"") + b"\n" async for change in changes)
        return await stream(request, lines, unread_s=UNREAD_S)


def _matching(request: web.Request, query: PatternQuery) -> tuple[str, bytes]:
    return _permitted(request, query.namespace), _check_pattern(query.pattern)


def _check_pattern(pattern: bytes) -> bytes:
    if (reason := excess(pattern)) is not None:
        raise BadParameter("pattern", reason)
    return pattern


def _one_or_all(request: web.Request, name: str) -> str | None:
    """Return the namespace of the request; None for all of them."""
    if name:
        return _permitted(request, name)
    check_may_see_all(request)
    return None


def _permitted(request: web.Request, name: str, parameter: str = "namespace") -> str:
    """Return the namespace of the request; a key that is limited to jobs may only name one of those jobs."""
    namespace = find_namespace(name)
    if namespace is None:
        raise BadParameter(parameter, f"{name!r} is not a namespace")
    if namespace.startswith(views.JOBS):
        check_may_see(request, namespace.removeprefix(views.JOBS))
    else:
        check_may_see_all(request)
    return namespace


def _most_values(request: web.Request) -> int:
    """Return how many values a value may hold: each takes at least one byte, except in values that a script stored."""
    return max(state_of(request).limits.max_value_bytes, OP_ELEMENTS)


async def _read_entries(request: web.Request) -> list[PortableEntry]:
    """Parse a body in a thread, many lines at a time."""
    reader, entries = LineReader(_most_values(request)), list[PortableEntry]()

    def read(lines: list[bytes]) -> list[PortableEntry]:
        return [portable for line in lines if (portable := reader.read(line)) is not None]

    try:
        async with aclosing(_line_batches(request)) as batches:
            async for lines in batches:
                entries += await asyncio.to_thread(read, lines)
    except BadLine as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    return entries


async def _line_batches(request: web.Request) -> AsyncGenerator[list[bytes], None]:
    """Yield the complete lines of a body; a line may be as long as the largest body of other requests."""
    with closing(Body(request.app[BODY_MEMORY], request.app[LARGEST_BODY], "a line")) as room:
        batch, rest, size = list[bytes](), list[bytes](), 0
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
