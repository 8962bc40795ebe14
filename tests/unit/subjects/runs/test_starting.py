"""What comes with a request that starts a run."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from spyweb.limits import IDEMPOTENCY_KEY, SCRIPT_VALUES
from spyweb.model import RunId
from spyweb.subjects.runs.service import StartedRun
from spyweb.subjects.runs.starting import DEEPEST, REPEATED, key_of, read_payload, started_answer
from spyweb.web.answer import BadParameter
from tests.fakes.client import Client, failure
from tests.fakes.daemon_service import FakeDaemonService


def asked(key: str | None) -> str | None:
    headers = {} if key is None else {"idempotency-key": key}
    return key_of(make_mocked_request("POST", "/", headers=headers))


def test_a_key_is_any_printable_text() -> None:
    assert asked(None) is None
    assert asked("8d3f-…") == "8d3f-…"
    assert asked("k" * IDEMPOTENCY_KEY) is not None


@pytest.mark.parametrize("key", ["", " ", "a\x01b", "k" * (IDEMPOTENCY_KEY + 1)])
def test_a_key_that_can_not_be_is_refused(key: str) -> None:
    with pytest.raises(BadParameter):
        asked(key)


def test_an_answer_says_when_it_is_a_repetition() -> None:
    assert REPEATED not in started_answer(StartedRun(run=RunId(1)), 202).headers
    assert started_answer(StartedRun(run=RunId(1), is_repeated=True), 202).headers[REPEATED] == "true"


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


async def test_a_trigger_takes_a_payload_with_it_and_a_wrong_one_starts_nothing(
    client: Client, service: FakeDaemonService
) -> None:
    async with client.post("/api/jobs/prices/trigger", data=b'{"branch": "main"}') as answer:
        assert (answer.status, await answer.json()) == (200, {"run": 9})
    async with client.post("/api/jobs/prices/trigger", data=b"{") as answer:
        assert answer.status == 400
    async with client.post("/api/jobs/prices/trigger", data=b" " * (SCRIPT_VALUES + 1)) as answer:
        assert (answer.status, await answer.json()) == (413, failure("a payload may be 64 KB", "too_large"))
    async with client.post("/api/jobs/prices/run", data=b"[1]") as answer:
        assert (answer.status, await answer.json()) == (422, failure("expected an object of values", "invalid"))
    assert service.story == ["trigger prices with {'branch': 'main'}"]
