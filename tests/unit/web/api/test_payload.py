"""JSON that is sent along with a run."""

from __future__ import annotations

import pytest
from aiohttp import web

from spyweb.limits import SCRIPT_VALUES
from spyweb.web.api.payload import DEEPEST, read_payload
from spyweb.web.app import socket_app
from tests.fakes.client import client_of, failure
from tests.fakes.daemon_service import FakeDaemonService


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"", None),
        (b"null", None),
        (b'{"a": [1, true, "x", null]}', {"a": [1, True, "x", None]}),
        (b"[99999999999999999999, 18446744073709551615]", [1e20, 1.8446744073709552e19]),
        (b"[" * DEEPEST + b"]" * DEEPEST, ...),
    ],
)
def test_any_json_is_read_as_lua_can_hold_it(content: bytes, value: object) -> None:
    found = read_payload(content)
    assert value is ... or found == value


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"1e400", b"[" * 61 + b"]" * 61, b"[" * 60_000, b"9" * 5000, b'{"a": ']
)
def test_what_is_no_json_or_too_deep_is_refused(content: bytes) -> None:
    with pytest.raises(web.HTTPBadRequest):
        read_payload(content)


async def test_a_trigger_takes_a_payload_with_it_and_a_wrong_one_starts_nothing() -> None:
    service = FakeDaemonService()
    async with client_of(socket_app(service)) as client:
        async with client.post("/api/jobs/prices/trigger", data=b'{"branch": "main"}') as answer:
            assert (answer.status, await answer.json()) == (200, {"run": 9})
        async with client.post("/api/jobs/prices/trigger", data=b"{") as answer:
            assert answer.status == 400
        async with client.post("/api/jobs/prices/trigger", data=b" " * (SCRIPT_VALUES + 1)) as answer:
            assert (answer.status, await answer.json()) == (413, failure("a payload may be 64 KB", "too_large"))
        async with client.post("/api/jobs/prices/run", data=b"[1]") as answer:
            assert (answer.status, await answer.json()) == (422, failure("expected an object of values", "invalid"))
    assert service.story == ["trigger prices with {'branch': 'main'}"]
