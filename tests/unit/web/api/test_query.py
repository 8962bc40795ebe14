"""Parameters of an address."""

from __future__ import annotations

from io import BytesIO
from typing import Annotated, Literal

import pytest
from aiohttp import web
from msgspec import Meta, Struct

from spyweb.web.answer import answer_errors
from spyweb.web.api.query import Natural, body_of, query_of
from spyweb.web.body import BODY_MEMORY, BodyMemory
from tests.fakes.client import Client, client_of, failure, get_json


@pytest.mark.parametrize("query", ["count=0", "count=x", "count=1e3", "count=10001", "count=" + "9" * 5000])
async def test_a_number_out_of_range_is_a_bad_request(query: str, client: Client) -> None:
    status, answer = await get_json(client, f"/api/next?{query}")
    assert (status, answer) == (400, failure("count: expected a whole number from 1 to 10000", "bad_request", "count"))


class Asked(Struct, frozen=True):
    """Parameters of each kind."""

    key: bytes
    text: str = ""
    number: Natural = 7
    flag: bool = False
    kind: Literal["a", "b"] | None = None
    since: Annotated[int, Meta(ge=0, description="a moment")] | None = None


class Below(Struct):
    """A part of a body."""

    name: str


class Sent(Struct):
    """A body."""

    count: int
    names: list[str] = []
    below: Below | None = None


async def show_asked(request: web.Request) -> web.Response:
    return web.Response(text=repr(query_of(request, Asked)))


async def show_sent(request: web.Request) -> web.Response:
    return web.Response(text=repr(await body_of(request, Sent, largest=1 << 20)))


def echo_app() -> web.Application:
    app = web.Application(middlewares=[answer_errors])
    app[BODY_MEMORY] = BodyMemory()
    app.router.add_get("/", show_asked)
    app.router.add_post("/", show_sent)
    return app


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("key=a", Asked(key=b"a")),
        ("key=%FF%00+", Asked(key=b"\xff\0 ")),
        ("key=a&key=b&other=1", Asked(key=b"b")),
        ("key=a&since=5", Asked(key=b"a", since=5)),
        ("key=&number=&flag=&text=", Asked(key=b"", flag=True)),
        ("key=&number=3&flag=0&text=%C3%BC&kind=b", Asked(key=b"", number=3, text="ü", kind="b")),
    ],
)
async def test_parameters_are_read_as_their_struct_says(query: str, read: Asked) -> None:
    async with client_of(echo_app()) as client, client.get(f"/?{query}") as answer:
        assert await answer.text() == repr(read)


@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        ("", "key", "is missing"),
        ("key=&text=%FF", "text", "expected UTF-8"),
        ("key=&number=%FF", "number", "expected UTF-8"),
        ("key=&number=-1", "number", "expected a whole number from 0"),
        ("key=&since=x", "since", "expected a whole number from 0"),
        ("key=&number=1.0", "number", "expected a whole number from 0"),
        ("key=&flag=perhaps", "flag", "expected true or false"),
        ("key=&kind=c", "kind", "expected one of a, b"),
    ],
)
async def test_a_wrong_parameter_is_named(query: str, field: str, reason: str) -> None:
    async with client_of(echo_app()) as client:
        assert await get_json(client, f"/?{query}") == (400, failure(f"{field}: {reason}", "bad_request", field))


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 400, failure("the body is not JSON", "bad_request")),
        (b"{}", 422, failure("count: is missing", "invalid", "count")),
        (b"\xff", 400, failure("the body is not JSON", "bad_request")),
        (b'{"other": ' + b"[" * 100_000, 400, failure("the body is not JSON", "bad_request")),
        (b"[]", 422, failure("expected object, got array", "invalid")),
        (b'{"count": 1, "below": {}}', 422, failure("below.name: is missing", "invalid", "below.name")),
        (b'{"count": "1"}', 422, failure("count: expected int, got str", "invalid", "count")),
        (b'{"count": 1, "names": [2]}', 422, failure("names[0]: expected str, got int", "invalid", "names[0]")),
        (b" " * ((1 << 20) + 1), 413, failure("a request's body may be 1 MB", "too_large")),
    ],
)
async def test_a_wrong_body_is_refused(body: bytes, status: int, told: object) -> None:
    async with client_of(echo_app()) as client, client.post("/", data=BytesIO(body)) as answer:
        assert (answer.status, await answer.json()) == (status, told)
