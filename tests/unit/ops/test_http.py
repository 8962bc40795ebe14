from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import pytest
from yarl import URL

from spyweb.errors import FetchError, OpError
from spyweb.model import MIB
from spyweb.ops import http as http_module
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.http import Part, encode_parts
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.network.request import Fetch
from spyweb.permissions.policy import ANYTHING
from spyweb.settings.sections import HttpSettings
from tests.fakes.ops import PRICES, FakeHttp, make_call, make_response, make_world

URL_TEXT = b"http://example.com/"


async def ask(http: FakeHttp, name: str, *arguments: object) -> list[object]:
    call = make_call(make_world(http=http))
    return list(await OpDispatcher(call).op(name, arguments))


async def asked(name: str, *arguments: object, settings: HttpSettings | None = None) -> Fetch:
    """What reaches the network."""
    http = FakeHttp(settings or HttpSettings())
    await ask(http, name, *arguments)
    return http.asked[0]


async def refused(name: str, *arguments: object) -> str:
    http = FakeHttp()
    with pytest.raises(OpError) as error:
        await ask(http, name, *arguments)
    assert http.asked == []
    return str(error.value)


async def test_a_response_is_a_table_and_no_error() -> None:
    response, error = await ask(FakeHttp(), "http_get", URL_TEXT)
    assert error is None
    assert response == {
        "status": 200,
        "body": b"hello",
        "headers": {b"x-a": b"1"},
        "url": "http://example.com/",
        "time_ms": 12,
        "size": 5,
    }


@pytest.mark.parametrize("more", [{}, {"proxy": "http://p:1"}])
async def test_a_failure_is_nil_and_a_table_that_names_the_proxy(more: dict[str, str]) -> None:
    http = FakeHttp(answers={URL_TEXT.decode(): FetchError("dns", "no such host", **more)})
    assert await ask(http, "http_get", URL_TEXT) == [None, {"error": "no such host", "kind": "dns"} | more]


async def test_a_get_is_a_get_with_the_defaults() -> None:
    fetch = await asked("http_get", URL_TEXT, {b"X-A": 1})
    gate = NetGate(ANYTHING, PRICES, "http_get")
    assert fetch == Fetch(url=URL(URL_TEXT.decode()), headers={"X-A": "1"}, timeout_s=30, largest=10 * MIB, gate=gate)


async def test_the_defaults_are_the_daemons() -> None:
    fetch = await asked("http_get", URL_TEXT, settings=HttpSettings(timeout_ms=3_000, max_body_size=MIB))
    assert (fetch.timeout_s, fetch.largest) == (3, MIB)


async def test_a_request_takes_every_option() -> None:
    options = {
        b"url": URL_TEXT,
        b"method": b"put",
        b"body": b"x",
        b"headers": {b"A": b"b"},
        b"proxy": b"http://proxy:3128",
        b"timeout": b"2.5",
        b"max_body_size": 2,
        b"unknown": True,
    }
    assert await asked("http_request", options) == Fetch(
        url=URL(URL_TEXT.decode()),
        method="PUT",
        body=b"x",
        headers={"A": "b"},
        proxy=URL("http://proxy:3128"),
        timeout_s=2.5,
        largest=2 * MIB,
        gate=NetGate(ANYTHING, PRICES, "http_request"),
    )


async def test_an_option_that_there_is_not_is_named_in_the_log() -> None:
    said = list[tuple[str, bytes]]()
    call = make_call(make_world(http=FakeHttp()), log=lambda level, text: said.append((level, text)))
    await OpDispatcher(call).op("http_request", ({b"url": URL_TEXT, b"metod": b"PUT", 1: b"x"},))
    assert said == [
        ("warn", b"http_request: there is no option 'metod'; did you mean \"method\"?"),
        ("warn", b"http_request: there is no option '1'"),
    ]


async def test_a_proxy_that_is_empty_is_none() -> None:
    assert (await asked("http_request", {b"url": URL_TEXT, b"proxy": b""})).proxy is None


@pytest.mark.parametrize("name", ["http_get", "http_post", "http_request", "http_multipart"])
async def test_a_request_with_too_many_headers_is_not_sent(name: str) -> None:
    headers = {b"X-%d" % number: number for number in range(300)}
    arguments: dict[str, tuple[object, ...]] = {
        "http_get": (URL_TEXT, headers),
        "http_post": (URL_TEXT, b"", headers),
        "http_request": ({b"url": URL_TEXT, b"headers": headers},),
        "http_multipart": (URL_TEXT, {b"a": b"b"}, headers),
    }
    http = FakeHttp()
    response, failure = await ask(http, name, *arguments[name])
    assert (response, http.asked) == (None, [])
    assert isinstance(failure, dict)
    assert failure["kind"] == "http"
    assert "headers, at most 256 are allowed" in failure["error"]


async def test_a_form_has_so_many_fields() -> None:
    http = FakeHttp()
    response, failure = await ask(http, "http_multipart", URL_TEXT, {b"%d" % number: True for number in range(1_005)})
    assert (response, http.asked) == (None, [])
    assert failure == {"kind": "http", "error": "a form has 1005 fields, at most 1000 are allowed"}
    fetch = await asked("http_multipart", URL_TEXT, {b"%d" % number: b"" for number in range(1_000)})
    assert fetch.body is not None


@pytest.mark.parametrize(("size", "is_elsewhere"), [(1_000, False), (2 << 20, True)])
async def test_a_large_form_is_put_together_in_a_thread(
    size: int, is_elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def encode(parts: Sequence[Part]) -> tuple[bytes, bytes]:
        threads.append(threading.get_ident())
        return encode_parts(parts)

    monkeypatch.setattr(http_module, "encode_parts", encode)
    fetch = await asked("http_multipart", URL_TEXT, {b"a": b"x" * size})
    assert len(fetch.body or b"") > size
    assert (threads != [threading.get_ident()]) is is_elsewhere


async def test_the_settings_headers_go_with_each_request_that_has_none_of_its_own() -> None:
    settings = HttpSettings(headers=(("Accept-Language", "de"), ("X-Team", "ü")))
    fetch = await asked("http_get", URL_TEXT, {b"accept-language": b"fr"}, settings=settings)
    assert fetch.headers == {"X-Team": "ü", "accept-language": "fr"}
    posted = await asked("http_post", URL_TEXT, b"a=1", settings=settings)
    assert posted.headers["Accept-Language"] == "de"


async def test_the_usual_type_of_a_post_is_stronger_than_one_for_all_requests() -> None:
    fetch = await asked("http_post", URL_TEXT, b"a=1", settings=HttpSettings(headers=(("Content-Type", "x/y"),)))
    assert fetch.headers == {"content-type": "application/x-www-form-urlencoded"}


async def test_a_multipart_sets_its_own_type_whatever_the_headers_say() -> None:
    fetch = await asked("http_multipart", URL_TEXT, {b"a": 1}, {b"Content-Type": b"text/plain", b"X": b"y"})
    assert fetch.method == "POST"
    assert fetch.headers.keys() == {"content-type", "X"}
    assert fetch.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert fetch.body is not None
    assert b'name="a"\r\n\r\n1\r\n' in fetch.body


@pytest.mark.parametrize("kind", [b"text/plain\r\nX: y", b"a\nb"])
async def test_a_field_with_a_broken_type_is_http(kind: bytes) -> None:
    fields = {b"a": {b"content": b"x", b"type": kind}}
    response, failure = await ask(FakeHttp(), "http_multipart", URL_TEXT, fields)
    assert response is None
    assert failure == {"error": "a part's type has a line break in it", "kind": "http"}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (b"", "must begin with http://"),
        (b"example.com", "must begin with http://"),
        (b"file:///etc/passwd", "must begin with http://"),
        (b"http://a\r\nX: y/", "control characters"),
    ],
)
async def test_a_bad_url_is_http_and_does_not_raise(url: bytes, reason: str) -> None:
    http = FakeHttp()
    response, failure = await ask(http, "http_get", url)
    assert response is None
    assert isinstance(failure, dict)
    assert failure["kind"] == "http"
    assert reason in failure["error"]
    assert http.asked == []


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("http_get", [], "bad argument #1 to 'http_get' (string expected, got no value)"),
        ("http_get", [{}], "bad argument #1 to 'http_get' (string expected, got table)"),
        ("http_get", [URL_TEXT, b"x"], "bad argument #2 to 'http_get' (table expected, got string)"),
        (
            "http_get",
            [URL_TEXT, {b"A": True}],
            "bad argument #2 to 'http_get' (header 'A': string expected, got boolean)",
        ),
        ("http_get", [URL_TEXT, {True: b"x"}], "bad argument #2 to 'http_get' (a key: string expected, got boolean)"),
        ("http_post", [URL_TEXT], "bad argument #2 to 'http_post' (string expected, got no value)"),
        ("http_post", [URL_TEXT, {}], "bad argument #2 to 'http_post' (string expected, got table)"),
        ("http_request", [URL_TEXT], "bad argument #1 to 'http_request' (table expected, got string)"),
        ("http_request", [{}], "bad argument #1 to 'http_request' (field 'url': string expected, got nil)"),
        (
            "http_multipart",
            [URL_TEXT, {b"a": True}],
            "bad argument #2 to 'http_multipart' (field 'a': string expected, got boolean)",
        ),
        (
            "http_multipart",
            [URL_TEXT, {b"a": {b"filename": b"x"}}],
            "bad argument #2 to 'http_multipart' (field 'a': content: string expected, got nil)",
        ),
    ],
)
async def test_a_wrong_type_raises(name: str, arguments: list[object], text: str) -> None:
    assert await refused(name, *arguments) == text


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (b"timeout", {}, "number expected, got table"),
        (b"timeout", 0, "a positive number expected"),
        (b"timeout", -1, "a positive number expected"),
        (b"timeout", math.nan, "a positive number expected"),
        (b"timeout", math.inf, "a positive number expected"),
        (b"max_body_size", b"10MB", "number expected, got string"),
        (b"headers", b"A: b", "table expected, got string"),
        (b"method", False, "string expected, got boolean"),
        (b"body", {}, "string expected, got table"),
        (b"proxy", [b"x"], "string expected, got table"),
    ],
)
async def test_an_option_of_a_wrong_type_raises(field: bytes, value: object, reason: str) -> None:
    text = await refused("http_request", {b"url": URL_TEXT, field: value})
    assert text == f"bad argument #1 to 'http_request' (field '{field.decode()}': {reason})"


async def test_the_body_is_never_larger_than_the_vm() -> None:
    http = FakeHttp(answers={"http://example.com/": make_response()})
    call = make_call(make_world(http=http), memory_limit=MIB)
    await OpDispatcher(call).op("http_get", [URL_TEXT])
    assert http.asked[0].largest == MIB


def test_names_cannot_break_out_of_their_quotes() -> None:
    _, body = encode_parts([Part(name=b'a"\r\nX: y', content=b"", filename=b'"\n')])
    assert b'name="a%22%0D%0AX: y"; filename="%22%0A"' in body


@pytest.mark.parametrize("field", ["name", "filename", "type"])
def test_the_head_of_a_part_is_as_long_as_headers_are(field: str) -> None:
    with pytest.raises(
        FetchError, match=r"^the head of a part has 6553[0-9] bytes, at most 65536 are allowed$"
    ) as error:
        encode_parts([Part(**{"name": b"", "content": b"", field: b'"' * 65_537})])
    assert error.value.kind == "http"
