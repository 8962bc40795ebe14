"""State: the stored values, key by key; they can be edited, deleted and restored, and locks can be broken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import islice, zip_longest
from typing import NamedTuple

import msgspec
from aiohttp import web
from msgspec import Struct, structs

from spyweb.errors import Refused
from spyweb.model import NULL, RunId, Value
from spyweb.settings.units import parse_duration
from spyweb.store.interchange.lines import find_namespace
from spyweb.store.interchange.value_json import TypeName, decode_value, type_of
from spyweb.store.model.entries import GLOBAL, job_namespace
from spyweb.subjects.runs.service import PastRunsService
from spyweb.subjects.state.api import LockQuery
from spyweb.subjects.state.service import StateService
from spyweb.subjects.state.views import JOBS, EntryView, LockView, NamespaceView, bytes_of
from spyweb.views.jobs import as_text
from spyweb.views.runs import copied
from spyweb.web.access.principal import Right
from spyweb.web.answer import BadParameter
from spyweb.web.api.query import LONGEST_NUMBER, Natural
from spyweb.web.pages.frame import Chip, with_query
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Question, Shown, lead_to
from spyweb.web.pages.site import answer_with
from spyweb.words import cut

TEMPLATE, PLACE = "state.html", "state"
KEYS = 50
VERSIONS = 20
CHIPS = 24
LOCKS = 50
NAMES = 200  # that a field proposes
MOST_VALUES = 100_000  # inside a value that is typed
LONGEST_PREVIEW = 80  # characters
LONGEST_CHANGE = 300
LONGEST_EDITED = 1 << 16  # characters of a value that is put into a field
CHANGES_SHOWN = 12  # of a version
_ABSENT = object()  # stands for a place that one of two values does not have

TYPE_WORDS = {**{kind: kind.value for kind in TypeName}, TypeName.STRING: "text", TypeName.BOOLEAN: "true or false"}


class StateQuery(Struct, frozen=True):
    """A part of a namespace's keys."""

    namespace: str = ""
    prefix: bytes = b""
    after: bytes | None = None  # a key: only later ones
    key: bytes | None = None  # the selected key


class VersionQuery(Struct, frozen=True):
    """A version of a value."""

    namespace: str
    key: bytes
    version: Natural = 0


def address(asked: Asked, *parts: str, **given: str | bytes | int | None) -> str:
    """Return an address with parameters, which may be any bytes."""
    return with_query(asked.to("state", *parts), given)


# -- the page ---------------------------------------------------------------------------------------------------------


def live_parts(asked: Asked) -> Mapping[str, PagePart]:
    """Return the keys, and the history of one, of the namespace in the address."""
    query = asked.query(StateQuery)
    if not query.namespace:
        return {}
    subjects = (f"state:{_permitted(asked, query.namespace)}",)
    past = {"past": PagePart("state_past.html", subjects)} if query.key is not None else {}
    return {"keys": PagePart("state_keys.html", subjects), **past}


async def parts_of(asked: Asked, query: StateQuery) -> Mapping[str, object]:
    """Gather the parts that change with the stored values."""
    state, namespace = asked.services[StateService], query.namespace
    found = await state.page(namespace, query.prefix, after=query.after, limit=KEYS + 1)
    # A page of large values is shorter, and there may be more of them.
    has_more = len(found) > KEYS or (
        bool(found) and bool(await state.page(namespace, query.prefix, after=bytes_of(found[-1].key), limit=1))
    )
    entries = await asyncio.to_thread(lambda: [show_entry(each) for each in found[:KEYS]])
    to = partial(address, asked)
    versions = []
    if query.key is not None:
        history = await state.history(namespace, query.key, VERSIONS + 1)
        versions = await asyncio.to_thread(show_versions, history, VERSIONS)
    last = entries[-1].key_bytes if entries and has_more else None
    return {
        "namespace": namespace,
        "namespace_words": words_of(namespace),
        "entries": entries,
        "prefix": query.prefix.decode("utf-8", "replace"),
        "key_bytes": query.key,
        "href": lambda key: to(namespace=namespace, prefix=query.prefix, after=query.after, key=key),
        "rollback": lambda version: address(asked, "rollback", namespace=namespace, key=query.key, version=version),
        "older": to(namespace=namespace, prefix=query.prefix, after=last) if last is not None else "",
        "first": to(namespace=namespace, prefix=query.prefix) if query.after is not None else "",
        "clear": to(namespace=namespace),
        "versions": versions,
    }


@DashboardPage("state", TEMPLATE, place=PLACE, of_job=True, parts=live_parts)
async def show_state(asked: Asked) -> Shown:
    """Show the stored values of a namespace; without one, redirect to the first."""
    query = asked.query(StateQuery)
    if not query.namespace:
        first = next((each.namespace for each in _sorted(await _namespaces(asked))), GLOBAL)
        if first == GLOBAL and asked.principal.jobs:
            seen = next(filter(asked.principal.may_see, asked.services.catalogue.names()), None)
            first = job_namespace(seen) if seen else ""
        namespace = _permitted(asked, first)
        raise web.HTTPFound(address(asked, namespace=namespace, prefix=query.prefix, after=query.after, key=query.key))
    return await _shown(asked, query)


async def _namespaces(asked: Asked) -> list[NamespaceView]:
    principal, found = asked.principal, await asked.services[StateService].namespaces()
    return [each for each in found if not principal.jobs or (each.job is not None and principal.may_see(each.job))]


async def _shown(
    asked: Asked, query: StateQuery, *, typed: Mapping[str, str] | None = None, problem: tuple[str, str] = ("", "")
) -> Shown:
    """Gather the whole page; `typed` is the input of a form that was refused."""
    namespaces = await _namespaces(asked)
    query = structs.replace(query, namespace=_permitted(asked, query.namespace))
    values = {
        **await parts_of(asked, query),
        "total": sum(each.keys for each in namespaces),
        "scopes": len(namespaces),
        "chips": _chips(asked, namespaces, query.namespace),
        "left_out": max(0, len(namespaces) - CHIPS),
        "names": [each.namespace for each in namespaces[:NAMES]],
        "job": query.namespace.removeprefix(JOBS) if query.namespace.startswith(JOBS) else "",
        **await _one(asked, query, typed or {}),
        **await _locks(asked),
        "field_types": [(kind.value, words) for kind, words in FIELD_WORDS.items()],
        "typed": typed or {},
        "problem_of": problem[0],
        "problem": problem[1],
        "add_to": address(asked, "add", namespace=query.namespace),
        "leave": address(asked, namespace=query.namespace, prefix=query.prefix, after=query.after),
    }
    status = web.HTTPUnprocessableEntity.status_code if problem[1] else web.HTTPOk.status_code
    return Shown(title=f"State: {words_of(query.namespace)}", values=values, status=status)


async def _one(asked: Asked, query: StateQuery, typed: Mapping[str, str]) -> dict[str, object]:
    """Gather the details of the selected key."""
    key = query.key
    entry = await asked.services[StateService].entry(query.namespace, key) if key is not None else None
    edited = await asyncio.to_thread(edit_value, entry) if entry else FieldValue(text="", type=FieldType.TEXT)
    return {
        "key": "" if key is None else key.decode("utf-8", "replace"),
        "entry": entry,
        "entry_type": TYPE_WORDS[entry.type] if entry else "",
        "edited": edited,
        "field_type": typed.get("type") or edited.type.value,
        "field_text": typed.get("value", edited.text),
        "put_to": address(asked, "put", namespace=query.namespace, key=key),
        "delete_at": address(asked, "delete", namespace=query.namespace, key=key),
    }


async def _locks(asked: Asked) -> dict[str, object]:
    """Gather the locks; they belong to no job, so a key that is limited to jobs sees none."""
    if asked.principal.jobs:
        return {"locks": [], "more_locks": 0, "sees_locks": False}
    locks = await asked.services[StateService].locks()
    shown = [
        {
            "lock": lock,
            "name": as_text(lock.name),
            "holder": as_text(lock.holder),
            "break_at": address(asked, "locks", "break", name=bytes_of(lock.name)),
            "ask": await _who_is_hit(asked, lock),
        }
        for lock in locks[:LOCKS]
    ]
    return {"locks": shown, "more_locks": max(0, len(locks) - LOCKS), "sees_locks": True}


def words_of(namespace: str) -> str:
    """Return the displayed name of a namespace."""
    return namespace.partition(":")[2] or namespace


def _sorted(namespaces: list[NamespaceView]) -> list[NamespaceView]:
    """Sort namespaces: first the shared ones, then scopes, then those of jobs; the largest first."""
    return sorted(namespaces, key=lambda each: (each.job is not None, each.scope is not None, -each.keys))


def _chips(asked: Asked, namespaces: list[NamespaceView], chosen: str) -> list[Chip]:
    shown = _sorted(namespaces)[:CHIPS]
    if all(each.namespace != chosen for each in shown):
        found = next((each for each in namespaces if each.namespace == chosen), NamespaceView(namespace=chosen))
        shown = [found, *shown]
    return [
        Chip(
            words=words_of(each.namespace),
            href=address(asked, namespace=each.namespace),
            is_current=each.namespace == chosen,
            count=each.keys,
        )
        for each in shown
    ]


def _permitted(asked: Asked, name: str) -> str:
    """Return the namespace of the address.  Raises PageMissing if it can't exist, or the principal may not see it."""
    namespace = find_namespace(name)
    principal = asked.principal
    if namespace is None:
        raise PageMissing(f"{name[:80]!r} is not a namespace" if name else "No stored values that this key may see")
    if principal.jobs and not (namespace.startswith(JOBS) and principal.may_see(namespace.removeprefix(JOBS))):
        raise web.HTTPForbidden(text=f"{principal.name} may not see the values stored there")
    return namespace


# -- the forms --------------------------------------------------------------------------------------------------------


@Action("state/put", right=Right.STATE, of_job=True)
async def put_value(asked: Asked) -> web.Response:
    """Write the value of a key, as it was typed."""
    query = asked.query(StateQuery)
    if query.key is None:
        raise BadParameter("key", "is missing")
    return await _write(asked, query, query.key)


@Action("state/add", right=Right.STATE, of_job=True)
async def add_value(asked: Asked) -> web.Response:
    """Write the value of a new key."""
    key = asked.form.get("key", "").encode("utf-8", "surrogateescape")
    query = asked.query(StateQuery)
    namespace = _permitted(asked, query.namespace)
    if not key:
        return await _again(asked, query, "key", "a key can't be empty")
    if await asked.services[StateService].entry(namespace, key):
        return await _again(asked, query, "key", "this key exists already: open it to change its value")
    return await _write(asked, query, key)


async def _write(asked: Asked, query: StateQuery, key: bytes) -> web.Response:
    state, form, namespace = asked.services[StateService], asked.form, _permitted(asked, query.namespace)
    entry = await state.entry(namespace, key)
    try:
        value = await asyncio.to_thread(read_field, form.get("value", ""), form.get("type", ""))
    except ValueError as error:
        return await _again(asked, query, "value", f"the value {error}")
    try:
        left_ms = entry.expires_ms - asked.services.clock.now_ms() if entry and entry.expires_ms else None
        ttl_ms = read_ttl(form.get("ttl", ""), left_ms)
    except ValueError as error:
        return await _again(asked, query, "ttl", str(error))
    seen = form.get("version", "")
    version = int(seen) if seen.isascii() and seen.isdigit() and len(seen) < LONGEST_NUMBER else None
    try:
        await state.put(namespace, key, value, ttl_ms, version=version)
    except Refused as error:
        return await _again(asked, query, "value", str(error))
    return lead_to(address(asked, namespace=namespace, key=key))


async def _again(asked: Asked, query: StateQuery, field: str, reason: str) -> web.Response:
    """Show the page again with the typed input and its problem."""
    shown = await _shown(asked, query, typed=asked.form, problem=(field, reason))
    return await answer_with(asked, TEMPLATE, PLACE, shown)


def read_field(text: str, kind: str) -> Value:
    """Return the typed value.  Raises ValueError with the problem."""
    text = text.replace("\r\n", "\n")  # as forms send line breaks
    match kind:
        case FieldType.TEXT:
            return text.encode("utf-8", "surrogateescape")
        case FieldType.NUMBER | FieldType.BOOLEAN:
            wanted = TypeName.NUMBER if kind == FieldType.NUMBER else TypeName.BOOLEAN
            try:
                value = decode_value(text.strip().encode(), 1 << 10)
            except ValueError:
                value = NULL
            if type_of(value) is not wanted:
                raise ValueError("is no number" if wanted is TypeName.NUMBER else "is not true or false")
            return value
        case _:
            return decode_value(text.encode("utf-8", "surrogateescape"), MOST_VALUES)


def read_ttl(text: str, left_ms: int | None) -> int | None:
    """Return how long a value is to be kept; None: for ever.  An empty field leaves it as it is."""
    text = text.strip()
    if not text:
        return max(left_ms, 1) if left_ms is not None else None
    if text == "never":
        return None
    try:
        ttl_ms = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"expiry: {error}") from error
    if ttl_ms == 0:
        raise ValueError("expiry: expected a duration such as 10m or 3d, or never")
    return ttl_ms


async def ask_before_deleting(asked: Asked) -> Question:
    query = asked.query(VersionQuery)
    return Question(
        title=f"Delete {_shown_key(query.key)} of {words_of(_permitted(asked, query.namespace))}?",
        words="Scripts no longer find this key. If the namespace keeps a history, the value can be restored.",
        button="Delete the key",
    )


@Action("state/delete", right=Right.STATE, of_job=True, question=ask_before_deleting)
async def delete_key(asked: Asked) -> web.Response:
    """Delete a key with its value."""
    query = asked.query(VersionQuery)
    namespace = _permitted(asked, query.namespace)
    await asked.services[StateService].delete(namespace, query.key)
    return lead_to(address(asked, namespace=namespace))


async def ask_before_rolling_back(asked: Asked) -> Question:
    query = asked.query(VersionQuery)
    return Question(
        title=f"Restore version {query.version:,} of {_shown_key(query.key)}?",
        words=f"The value is stored in {words_of(_permitted(asked, query.namespace))} as a new version without "
        "an expiry. The current value stays in the history.",
        button="Restore it",
    )


@Action("state/rollback", right=Right.STATE, of_job=True, question=ask_before_rolling_back)
async def roll_back(asked: Asked) -> web.Response:
    """Write the value of an earlier version again."""
    query = asked.query(VersionQuery)
    namespace = _permitted(asked, query.namespace)
    await asked.services[StateService].rollback(namespace, query.key, query.version)
    return lead_to(address(asked, namespace=namespace, key=query.key))


async def ask_before_breaking(asked: Asked) -> Question:
    name = asked.query(LockQuery).name
    locks = await asked.services[StateService].locks()
    lock = next((each for each in locks if bytes_of(each.name) == name), None)
    if lock is None:
        raise PageMissing("This lock is no longer held")
    return Question(
        title=f"Break the lock {_shown_key(name)}?", words=await _who_is_hit(asked, lock), button="Break the lock"
    )


@Action("state/locks/break", right=Right.STATE, question=ask_before_breaking)
async def break_lock(asked: Asked) -> web.Response:
    """Release a lock."""
    await asked.services[StateService].break_lock(asked.query(LockQuery).name)
    return lead_to(asked.back())


async def _who_is_hit(asked: Asked, lock: LockView) -> str:
    """Describe the holder of a lock that is to be broken."""
    holder = cut(as_text(lock.holder), LONGEST_PREVIEW)
    run = await asked.services[PastRunsService].find(RunId(lock.run)) if lock.run is not None else None
    if run is None:
        return f"{holder} holds it and is not interrupted, so two runs may use what the lock protects."
    return f"Run {run.id:,} of {run.job} holds it and is not interrupted, so two runs may use what the lock protects."


def _shown_key(key: bytes) -> str:
    return cut(key.decode("utf-8", "replace"), LONGEST_PREVIEW)


# -- values in the form of store/interchange/value_json.py: large ones take a while, so this belongs into a thread --


class FieldType(StrEnum):
    """The way in which a field is read as a value."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"


FIELD_WORDS = {**{kind: kind.value for kind in FieldType}, FieldType.BOOLEAN: "true or false", FieldType.JSON: "JSON"}


class ShownEntry(Struct, frozen=True, kw_only=True):
    """An entry in a row of a list."""

    key: str
    key_bytes: bytes
    preview: str
    type: str
    version: int
    updated_ms: int
    expires_ms: int | None


class FieldValue(Struct, frozen=True, kw_only=True):
    """A value as a field shows it."""

    text: str
    type: FieldType
    is_too_long: bool = False  # the text is its beginning


class ShownChange(NamedTuple):
    """A place of a value that a version has changed, and its value before and after; None: it was not there."""

    path: str
    old: str | None
    new: str | None


class ShownVersion(Struct, frozen=True, kw_only=True):
    version: int
    at_ms: int
    changes: Sequence[ShownChange]
    is_first: bool  # the version before is not kept
    left_out: bool
    preview: str


def show_entry(entry: EntryView) -> ShownEntry:
    key, preview = as_text(entry.key), cut(as_text(entry.value), LONGEST_PREVIEW)
    return copied(
        ShownEntry, entry, key=key, key_bytes=bytes_of(entry.key), preview=preview, type=TYPE_WORDS[entry.type]
    )


def edit_value(entry: EntryView) -> FieldValue:
    """Return the text of a field; a text that a field would change is shown as JSON."""
    value = entry.value
    match value:
        case str() if "\r" not in value:
            text, kind = value, FieldType.TEXT
        case bool() | int() | float():
            text, kind = as_text(value), FieldType.BOOLEAN if isinstance(value, bool) else FieldType.NUMBER
        case _:
            encoded = msgspec.json.encode(value)
            is_short = len(encoded) <= LONGEST_EDITED
            text, kind = (msgspec.json.format(encoded, indent=2) if is_short else encoded).decode(), FieldType.JSON
    return FieldValue(text=text[:LONGEST_EDITED], type=kind, is_too_long=len(text) > LONGEST_EDITED)


def show_versions(newest_first: Sequence[EntryView], limit: int) -> list[ShownVersion]:
    """Show the newest versions with what each has changed; one version more than those may be given."""
    versions = []
    for place, entry in enumerate(newest_first[:limit], 1):
        before = newest_first[place] if place < len(newest_first) else None
        changes = list(islice(diff(before.value, entry.value), CHANGES_SHOWN + 1)) if before else []
        versions.append(
            ShownVersion(
                version=entry.version,
                at_ms=entry.updated_ms,
                changes=changes[:CHANGES_SHOWN],
                is_first=before is None,
                left_out=len(changes) > CHANGES_SHOWN,
                preview=cut(as_text(entry.value), LONGEST_CHANGE),
            )
        )
    return versions


def diff(old: object, new: object, path: tuple[str, ...] = ()) -> Iterator[ShownChange]:
    """Yield the places in which two values differ, in the order of the new one."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*new, *old]):
            yield from diff(old.get(name, _ABSENT), new.get(name, _ABSENT), (*path, str(name)))
    elif isinstance(old, list) and isinstance(new, list):
        for place, (before, after) in enumerate(zip_longest(old, new, fillvalue=_ABSENT), 1):  # as Lua counts
            yield from diff(before, after, (*path, str(place)))
    elif type(old) is not type(new) or old != new:  # as Lua tells values apart: 1 is not 1.0, and true is no number
        yield ShownChange(".".join(path), _side(old), _side(new))


def _side(value: object) -> str | None:
    return None if value is _ABSENT else cut(as_text(value), LONGEST_CHANGE)
