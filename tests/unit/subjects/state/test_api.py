"""Stored values over HTTP."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest

from spyweb.model import HistoryRule
from spyweb.web.api.route import LARGEST_BODY
from spyweb.web.app import socket_app
from tests.fakes.client import Client, client_of, failure, get_json, post_json
from tests.fakes.daemon_service import NOW_MS, FakeDaemonService, make_state

STATE = "/api/state"
RULES = {"state": HistoryRule(versions=5)}


@pytest.fixture
async def service() -> FakeDaemonService:
    return FakeDaemonService(state=make_state(history=RULES))


async def send(client: Client, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    async with client.request(method, f"{STATE}/{path}", data=BytesIO(body)) as answer:
        return answer.status, await answer.json()


async def put(client: Client, key: str, body: bytes, more: str = "") -> tuple[int, Any]:
    return await send(client, "PUT", f"entry?key={key}{more}", body)


def written(old: object, new: object) -> dict[str, object]:
    return {"created": old is None, "old_value": old, "new_value": new}


async def lines(client: Client, path: str) -> list[dict[str, object]]:
    async with client.get(f"{STATE}/{path}") as answer:
        assert answer.status == 200
        assert answer.content_type == "application/x-ndjson"
        return [json.loads(line) for line in (await answer.text()).splitlines()]


async def test_an_entry_is_put_and_read(client: Client) -> None:
    assert await put(client, "a", b'{"b":[1]}', "&ttl_ms=5000") == (200, written(None, {"b": [1]}))
    assert await put(client, "a", b'{"b":[2]}', "&ttl_ms=5000") == (200, written({"b": [1]}, {"b": [2]}))
    status, answer = await get_json(client, f"{STATE}/entry?key=a")
    entry = {"namespace": "state", "key": "a", "value": {"b": [2]}, "type": "table", "version": 2}
    moments = {"created_ms": NOW_MS, "updated_ms": NOW_MS, "expires_ms": NOW_MS + 5000}
    assert (status, answer) == (200, {"entry": entry | moments})


async def test_a_key_may_be_any_bytes(client: Client) -> None:
    await put(client, "%FF%00%2B+", b"1")
    (entry, end) = await lines(client, "entries?prefix=%FF")
    assert entry["key"] == {"$base64": "/wArIA=="}
    assert end == {"end": 1}
    deleted = {"deleted": True, "old_value": 1, "new_value": None}
    assert await send(client, "DELETE", "entry?key=%FF%00%2B+") == (200, deleted)


@pytest.mark.parametrize(("query", "field"), [("old=x&new=job:a", "old"), ("old=job:a&new=x", "new")])
async def test_the_wrong_one_of_two_namespaces_is_named(client: Client, query: str, field: str) -> None:
    answer = await post_json(client, f"{STATE}/move?{query}")
    assert answer == (400, failure(f"{field}: 'x' is not a namespace", "bad_request", field))


async def test_a_damaged_import_changes_nothing(client: Client) -> None:
    good = b'{"namespace":"state","key":"a","value":1}\n'
    async with client.post(f"{STATE}/import", data=good + b'{"end":2}') as answer:
        text = 'line 2: {"end":2} ends an export, but 1 entries precede it'
        assert (answer.status, (await answer.json())["error"]) == (400, text)
    async with client.post(f"{STATE}/import", data=good + b"\n" + good.replace(b"1}", b"1")) as answer:
        assert (answer.status, (await answer.json())["error"][:22]) == (400, "line 3: is not JSON: I")
    large = b'{"namespace":"state","key":"b","value":"%s"}' % (b"x" * 2000)
    async with client.post(f"{STATE}/import", data=good + large) as answer:
        text = "b: the value of 2000 bytes is over the limit of 1000"
        assert (answer.status, (await answer.json())["error"]) == (409, text)
    assert await lines(client, "entries") == [{"end": 0}]


async def test_a_watch_tells_that_it_has_begun_then_each_change(client: Client) -> None:
    async with client.get(f"{STATE}/watch?pattern=a*") as answer:
        assert await answer.content.readline() == b"\n"
        await put(client, "b", b"1")
        await put(client, "a", b"1")
        change = json.loads(await answer.content.readline())
    assert (change["key"], change["kind"], change["old"], change["new"]) == ("a", "created", None, 1)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("entry", "key: is missing"),
        ("entry?key=a&namespace=jobs:x", "'jobs:x' is not a namespace"),
        ("entry?key=a&namespace=%FF", "namespace: expected UTF-8"),
        ("entries?limit=-1", "limit: expected a whole number"),
        ("stats?namespace=x", "'x' is not a namespace"),
    ],
)
async def test_wrong_parameters_are_named(client: Client, path: str, reason: str) -> None:
    status, answer = await get_json(client, f"{STATE}/{path}")
    assert status == 400
    assert reason in answer["error"]


async def test_wrong_values_are_refused_and_nothing_is_written(client: Client) -> None:
    status, answer = await put(client, "a", b"1", f"&ttl_ms={(1 << 63) - 1}")
    assert status == 400
    assert "ttl_ms: expected a whole number" in str(answer)
    truncated = failure("the value is not JSON: Input data was truncated", "bad_request")
    assert await put(client, "a", b"{") == (400, truncated)
    too_long = failure(f"{'k' * 21}: the key of 21 bytes is over the limit of 20", "refused")
    assert await put(client, "k" * 21, b"1") == (409, too_long)
    assert await lines(client, "entries") == [{"end": 0}]


async def test_lines_longer_than_one_read_are_taken_whole(client: Client) -> None:
    space = b" " * 300_000
    line = b'{"namespace":"state","key":"%b",' + space + b'"value":1}\n'
    body = BytesIO(line.replace(b"%b", b"a") + line.replace(b"%b", b"b"))
    async with client.post(f"{STATE}/import", data=body) as answer:
        assert await answer.json() == {"added": 2, "replaced": 0, "expired": 0}
    async with client.put(f"{STATE}/entry?key=c", data=BytesIO(space * 10 + b"1")) as answer:
        assert answer.status == 200


async def test_a_value_is_measured_before_it_is_built(client: Client) -> None:
    body = b"[" + b"{}," * 200_000 + b"{}]"
    assert await put(client, "a", body) == (400, failure("the value holds more than 200000 values", "bad_request"))
    line = b'{"namespace":"state","key":"a","value":%b}' % body
    async with client.post(f"{STATE}/import", data=BytesIO(line)) as answer:
        refusal = failure("line 1: holds more than 200000 values", "bad_request")
        assert (answer.status, await answer.json()) == (400, refusal)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'[{"hash"', (400, failure("the body is not JSON", "bad_request"))),
        (b"{}", (422, failure("expected array, got object", "invalid"))),
        (b"[5]", (422, failure("[0]: expected object, got int", "invalid", "[0]"))),
        (b'[{"hash": "YQ=="}]', (422, failure("[0].fields: is missing", "invalid", "[0].fields"))),
    ],
)
async def test_what_makes_no_records_is_told_as_of_any_body(body: bytes, told: object, client: Client) -> None:
    async with client.post(f"{STATE}/records?job=prices", data=body) as answer:
        assert (answer.status, await answer.json()) == told


async def test_a_body_or_a_line_over_the_limit_is_refused() -> None:
    app = socket_app(FakeDaemonService())
    app[LARGEST_BODY] = 1 << 20
    async with client_of(app) as client:
        large = b" " * (1 << 20) + b"1"
        assert await put(client, "a", large) == (413, failure("a request's body may be 1 MB", "too_large"))
        async with client.post(f"{STATE}/import", data=BytesIO(large)) as answer:
            assert (answer.status, await answer.json()) == (413, failure("a line may be 1 MB", "too_large"))

        line = b'{"namespace":"state","key":"%d",' + b" " * 1_000 + b'"value":1}\n'
        many = b"".join(line.replace(b"%d", b"%d" % number) for number in range(3_000))
        async with client.post(f"{STATE}/import", data=BytesIO(many)) as answer:  # 3 MB, but in lines
            assert await answer.json() == {"added": 3_000, "replaced": 0, "expired": 0}


async def test_a_pattern_that_is_too_long_is_refused(client: Client) -> None:
    refusal = failure("pattern: a pattern has 2000 bytes, at most 1024 are allowed", "bad_request", "pattern")
    for path in ("count", "watch"):
        assert await get_json(client, f"{STATE}/{path}?pattern={'*a' * 1000}") == (400, refusal)
    assert await send(client, "DELETE", f"entries?pattern={'*a' * 1000}") == (400, refusal)


async def test_an_entry_is_updated_in_place_and_a_wrong_update_changes_nothing(client: Client) -> None:
    bytes_op = b'{"type": "set", "path": "a", "value": {"$base64": "/w=="}}'
    body = b'{"ops": [%b, {"type": "increment", "path": "n", "by": 2}]}' % bytes_op
    found: dict[str, object] = {"old_value": None, "new_value": {"a": {"$base64": "/w=="}, "n": 2}, "errors": []}
    entry = "entry?key=k&namespace=scope:s"
    assert await send(client, "PATCH", entry, body) == (200, found)
    for wrong, status, field in (
        (b"{", 400, None),
        (b"[]", 422, None),
        (b'{"ops": [{"type": "drop"}]}', 422, "ops[0].type"),
        (b'{"ops": [{"type": "increment", "by": 1.5}]}', 422, "ops[0].by"),
        (b'{"ops": [{"type": "set", "path": ["a", "b"]}]}', 409, None),
    ):
        code, answer = await send(client, "PATCH", entry, wrong)
        assert (code, answer["field"]) == (status, field)
    assert (await send(client, "PATCH", entry, b'{"ops": []}'))[1]["old_value"] == found["new_value"]
    _, namespaces = await get_json(client, f"{STATE}/namespaces")
    assert namespaces == [{"namespace": "scope:s", "scope": "s", "job": None, "keys": 1}]
