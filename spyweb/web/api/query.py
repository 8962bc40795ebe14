"""Read the parameters of an address, the job or run in its path, and the body of a request.

Parameters are a Struct: each has its type, bounds and default there.  Names of scripts may be any bytes, so a field of
type `bytes` takes percent-encoded bytes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import cache
from typing import Annotated, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web
from msgspec import Meta, inspect

from spyweb.model import JobId, RunId
from spyweb.web.access.principal import check_may_see, principal_of
from spyweb.web.answer import BadBody, BadParameter, page_answer
from spyweb.web.api.services import SERVICES, STARTING
from spyweb.web.body import BODY_MEMORY, LARGEST, Body

MOST = (1 << 63) - 1  # the largest number that the store takes
MAX_LIMIT = 1_000
ROUNDS, LOOKED_AT = 20, 1_000  # of a search for visible rows: pages at most, and rows of each page
AGAIN_S = 1  # after which a client that was refused during the start should try again
LONGEST_NUMBER = 20  # digits; more are not turned into a number
_WHERE = re.compile(r" - at `\$\.?(?P<field>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
TRUE, FALSE = frozenset({"", "1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})

Positive = Annotated[int, Meta(ge=1, le=MOST)]
Natural = Annotated[int, Meta(ge=0, le=MOST)]

Q = TypeVar("Q", bound=msgspec.Struct)
T = TypeVar("T")
V = TypeVar("V")
M = TypeVar("M")


class PageQuery(msgspec.Struct, frozen=True):
    """Which page of a list, of which job."""

    job: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 30
    before: Annotated[Natural, Meta(description="the number of the last one of the page before: only older ones")] = 0


class ListQuery(msgspec.Struct, frozen=True):
    """Where a page of the dashboard's lists begins, of one job or of all."""

    job: str = ""
    before: Natural = 0  # the number of the last one of the page before: only older ones


def query_of(request: web.Request, kind: type[Q]) -> Q:
    """Return the parameters of an address: the last of each name, and no unknown ones.  Raises BadParameter."""
    fields = _fields(kind)
    given: dict[str, object] = {}
    raw = request.rel_url.raw_query_string
    for name, text in parse_qsl(raw, keep_blank_values=True, encoding="utf-8", errors="surrogateescape"):
        if name in fields:
            given[name] = _read(fields[name], name, text)
    present = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(present, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        name, reason = _located(error)
        raise BadParameter(name, (name in given and _expected(kind, name)) or reason) from error


def _located(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the name of the invalid field, which may be empty, and the reason."""
    text = str(error)
    missing, where = _MISSING.match(text), _WHERE.search(text)
    name = where["field"] if where else ""
    if missing:
        return ".".join(filter(None, (name, missing["field"]))), "is missing"
    text = _WHERE.sub("", text)
    return name, text[:1].lower() + text[1:].replace("`", "")  # the text of the library, as it follows a colon


@cache
def _fields(kind: type[msgspec.Struct]) -> Mapping[str, inspect.Type]:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return {each.encode_name: _without_none(each.type) for each in found.fields}


def _expected(kind: type[msgspec.Struct], name: str) -> str:
    match _fields(kind).get(name):
        case inspect.IntType(ge=least, le=most):
            return f"expected a whole number from {least}" + ("" if most in (None, MOST) else f" to {most}")
        case inspect.LiteralType(values=values) | inspect.EnumType(cls=values):
            return f"expected one of {', '.join(str(getattr(each, 'value', each)) for each in values)}"
        case _:
            return ""


def _without_none(kind: inspect.Type) -> inspect.Type:
    """Return the type of a parameter that is given."""
    if isinstance(kind, inspect.Metadata):  # with a description
        return _without_none(kind.type)
    if isinstance(kind, inspect.UnionType):
        return _without_none(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
    return kind


def _read(kind: inspect.Type, name: str, text: str) -> object:
    """Return a parameter in its type, or as text; None for an empty number.  `?debug` alone sets a flag."""
    match kind:
        case inspect.BytesType():
            return text.encode("utf-8", "surrogateescape")
        case inspect.IntType() if whole_number(text) is not None or not text:
            return whole_number(text)
        case inspect.BoolType() if text.lower() not in TRUE | FALSE:
            raise BadParameter(name, "expected true or false")
        case inspect.BoolType():
            return text.lower() in TRUE
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadParameter(name, "expected UTF-8") from error
    return text


def whole_number(text: str) -> int | None:
    """Return a whole number within the range of the store; None for any other text."""
    is_number = text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER
    return int(text) if is_number and int(text) <= MOST else None


async def body_of(request: web.Request, kind: type[T], largest: int = LARGEST) -> T:
    """Return the JSON of a request's body.  Raises HTTPBadRequest where it is not JSON, BadBody where it is invalid."""
    with closing(Body(request.app[BODY_MEMORY], largest)) as body:
        return read_body(await body.read(request), kind)


def read_body(content: bytes, kind: type[T]) -> T:
    """Return the JSON of a body.  Raises HTTPBadRequest where it is not JSON, BadBody where it is invalid."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        name, reason = _located(error)
        raise BadBody(name or None, reason) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(text="the body is not JSON") from error


def job_in_path(request: web.Request) -> JobId:
    return find_job(request, request.match_info["job"])


def any_job_in_path(request: web.Request) -> JobId:
    """Return the job in the path, also one that does not load."""
    return find_job(request, request.match_info["job"], is_loaded=False)


def run_in_path(request: web.Request) -> RunId:
    return RunId(number_in_path(request, "run"))


def number_in_path(request: web.Request, name: str) -> int:
    number = whole_number(request.match_info[name])
    if number is None:
        raise web.HTTPBadRequest(text=f"expected the number of {'an' if name == 'incident' else 'a'} {name}")
    return number


def find_job(request: web.Request, name_or_id: str, *, is_loaded: bool = True) -> JobId:
    """Return the job of this id or name.  Raises HTTPNotFound, or as `check_may_see` and `check_loaded` do."""
    catalogue = request.app[SERVICES].catalogue
    job = catalogue.find(name_or_id) if is_loaded else catalogue.find_any(name_or_id)
    check_may_see(request, job or name_or_id)
    if job is None:
        check_loaded(request)
        raise web.HTTPNotFound(text=catalogue.no_such_job(name_or_id))
    return job


def check_loaded(request: web.Request) -> None:
    """Raise HTTPServiceUnavailable while the daemon starts: a missing job may still be loaded."""
    if request.app[SERVICES].is_starting():
        raise web.HTTPServiceUnavailable(text=STARTING, headers={"Retry-After": str(AGAIN_S)})


async def visible(
    request: web.Request,
    ask: Callable[[int, M | None], Awaitable[list[V]]],
    describe: Callable[[V], tuple[str, M]],
    *,
    limit: int,
    before: M | None,
) -> list[V]:
    """Return rows, newest first, that the client may see.

    `ask` gives a number of rows, older than a mark; `describe` gives the job of a row, and its mark.  The search is
    bounded: it ends after ROUNDS pages, even where the client may see none of their rows.
    """
    principal = principal_of(request)
    if not principal.jobs:
        return await ask(limit, before)
    found: list[V] = []
    for _ in range(ROUNDS):
        page = await ask(LOOKED_AT, before)
        found += [each for each in page if principal.may_see(describe(each)[0])]
        if len(found) >= limit or len(page) < LOOKED_AT:
            break
        before = describe(page[-1])[1]
    return found[:limit]


async def list_answer(
    request: web.Request,
    query: PageQuery,
    ask: Callable[[int, M | None], Awaitable[list[V]]],
    describe: Callable[[V], tuple[str, M]],
    show: Callable[[V], object] = lambda each: each,
) -> web.Response:
    """Answer with a page of a list, as `visible` finds it, and a link to the next page."""
    before = cast(M, query.before) if query.before else None
    found = await visible(request, ask, describe, limit=query.limit, before=before)
    following = describe(found[-1])[1] if len(found) == query.limit else None
    return page_answer(request, [show(each) for each in found], before=following)


def job_of(request: web.Request, named: str | None) -> JobId | None:
    """Return the job of this id or name, also one that was removed: its rows remain.  Raises HTTPForbidden."""
    if named is None:
        return None
    job = request.app[SERVICES].catalogue.find(named) or JobId(named)
    check_may_see(request, job)
    return job
