"""The four HTTP ops, through a run's host, against a real server on loopback."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import AsyncIterator
from typing import cast

import pytest

from spyweb import __version__
from spyweb.model import MIB
from spyweb.ops.network.resolver import Address
from tests.fakes.http_script import Script, body_of, open_script, sent_headers
from tests.fakes.web_server import WebServer, open_raw_server


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with open_script() as script:
        yield script


async def test_a_response_has_all_its_fields(server: WebServer, script: Script) -> None:
    url = server.url("/hello")
    response = await script.ask("http_get", url.encode())
    assert response["status"] == 200
    assert response["body"] == b"hello"
    assert response["url"] == url.encode()
    assert response["size"] == 5
    assert isinstance(response["time_ms"], int)
    assert (response["ip"], response["redirects"]) == (b"127.0.0.1", 0)
    assert cast(dict[bytes, bytes], response["headers"])[b"x-answer"] == b"42"


@pytest.mark.parametrize("status", [204, 304, 404, 500, 503])
async def test_any_status_is_a_response(server: WebServer, script: Script, status: int) -> None:
    response = await script.ask("http_get", server.url(f"/status/{status}").encode())
    assert response["status"] == status


async def test_a_get_says_who_asks_and_nothing_it_should_not(server: WebServer, script: Script) -> None:
    headers = sent_headers(await script.ask("http_get", server.url("/echo").encode(), {b"X-Mine": b"1"}))
    assert headers["user-agent"] == f"spyweb/{__version__}"
    assert headers["x-mine"] == "1"
    assert headers["accept"] == "*/*"
    assert "content-type" not in headers
    assert "cookie" not in headers


async def test_a_script_may_name_its_own_user_agent(server: WebServer, script: Script) -> None:
    headers = sent_headers(await script.ask("http_get", server.url("/echo").encode(), {b"user-agent": b"me"}))
    assert headers["user-agent"] == "me"


async def test_a_post_is_a_form_unless_it_says_otherwise(server: WebServer, script: Script) -> None:
    url = server.url("/echo").encode()
    plain = await script.ask("http_post", url, b"a=1")
    typed = await script.ask("http_post", url, b"{}", {b"Content-type": b"application/json"})
    assert sent_headers(plain)["content-type"] == "application/x-www-form-urlencoded"
    assert sent_headers(typed)["content-type"] == "application/json"
    assert json.loads(body_of(plain))["method"] == "POST"


@pytest.mark.parametrize("size", [0, 1, 3 * MIB])
async def test_a_body_arrives_byte_for_byte(server: WebServer, script: Script, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
    response = await script.ask("http_post", server.url("/echo").encode(), body)
    assert base64.b64decode(json.loads(body_of(response))["body"]) == body
    assert sent_headers(response)["content-length"] == str(size)


async def test_a_request_has_any_method_body_and_headers(server: WebServer, script: Script) -> None:
    options = {b"url": server.url("/echo").encode(), b"method": b"patch", b"body": 42, b"headers": {b"X-N": 3.0}}
    response = await script.ask("http_request", options)
    echoed = json.loads(body_of(response))
    assert echoed["method"] == "PATCH"
    assert base64.b64decode(echoed["body"]) == b"42"
    assert sent_headers(response)["x-n"] == "3"


async def test_a_head_of_a_large_file_is_fine(server: WebServer, script: Script) -> None:
    response = await script.ask("http_request", {b"url": server.url("/large?mb=20").encode(), b"method": b"HEAD"})
    assert (response["status"], response["body"]) == (200, b"")


async def test_a_script_cannot_contradict_the_length_of_its_body(server: WebServer, script: Script) -> None:
    headers = {b"Content-Length": b"1", b"Transfer-Encoding": b"chunked"}
    response = await script.ask("http_post", server.url("/echo").encode(), b"four", headers)
    assert sent_headers(response)["content-length"] == "4"
    assert "transfer-encoding" not in sent_headers(response)


async def test_a_form_with_files_arrives(server: WebServer, script: Script) -> None:
    fields = {
        b"title": b"caf\xc3\xa9",
        b"count": 3,
        b"photo": {b"content": b"\x00\xff\r\n--x", b"filename": b'a"b.png', b"type": b"image/png"},
        b"log": {b"content": b"line", b"filename": b"a.log"},
    }
    response = await script.ask("http_multipart", server.url("/form").encode(), fields)
    arrived = {
        name: (base64.b64decode(content), filename, kind)
        for name, content, filename, kind in json.loads(body_of(response))
    }
    assert arrived == {
        "title": (b"caf\xc3\xa9", None, None),
        "count": (b"3", None, None),
        "photo": (b"\x00\xff\r\n--x", "a%22b.png", "image/png"),
        "log": (b"line", "a.log", "application/octet-stream"),
    }


async def test_no_cookie_is_kept(server: WebServer) -> None:
    """For a name, since no client keeps one for an address."""

    def lookup(host: str) -> tuple[Address, ...]:
        return (Address(socket.AF_INET, "127.0.0.1"),)

    url = server.url("/cookie", "one.test").encode()
    async with open_script(lookup=lookup) as script:
        first = await script.ask("http_get", url)
        second = await script.ask("http_get", url)
    assert cast(dict[bytes, bytes], first["headers"])[b"set-cookie"].startswith(b"crumb=1")
    assert second["body"] == b"none"


async def test_the_environment_names_no_proxy_and_no_password(
    server: WebServer, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    response = await script.ask("http_get", server.url("/echo").encode())
    assert "authorization" not in sent_headers(response)


async def test_a_password_in_the_address_becomes_a_header_and_is_not_told(server: WebServer, script: Script) -> None:
    response = await script.ask("http_get", server.url("/echo", host="me:secret@127.0.0.1").encode())
    assert sent_headers(response)["authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()
    assert "secret" not in str(response["url"])


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
async def test_compressed_bodies_are_asked_for_and_unpacked(server: WebServer, script: Script, encoding: str) -> None:
    response = await script.ask("http_get", server.url(f"/compressed/{encoding}").encode())
    assert response["body"] == b"hello " * 1000


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"gzip, gzip", b"unheard-of"])
@pytest.mark.parametrize(
    ("method", "head"),
    [
        (b"GET", b"200 OK\r\nContent-Length: 0"),
        (b"GET", b"204 No Content"),
        (b"GET", b"304 Not Modified\r\nContent-Length: 10"),
        (b"HEAD", b"200 OK\r\nContent-Length: 10"),
    ],
)
async def test_without_a_body_any_encoding_will_do(script: Script, encoding: bytes, method: bytes, head: bytes) -> None:
    answer = b"HTTP/1.1 " + head + b"\r\nContent-Encoding: " + encoding + b"\r\n\r\n"
    async with open_raw_server(answer) as raw:
        response = await script.ask("http_request", {b"url": raw.url("/").encode(), b"method": method})
    assert response["body"] == b""


async def test_headers_come_as_bytes_in_lower_case_with_repeats_joined(script: Script) -> None:
    answer = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nX-Latin: \xe9\r\nContent-Length: 2\r\n\r\nhi"
    async with open_raw_server(answer) as raw:
        response = await script.ask("http_get", raw.url("/").encode())
    assert response["headers"] == {b"x-a": b"1, 2", b"x-latin": b"\xe9", b"content-length": b"2"}


async def test_a_very_long_header_is_no_reason_to_fail(script: Script) -> None:
    answer = b"HTTP/1.1 200 OK\r\nPolicy: " + b"x" * 20_000 + b"\r\nContent-Length: 2\r\n\r\nhi"
    async with open_raw_server(answer) as raw:
        response = await script.ask("http_get", raw.url("/").encode())
    assert response["body"] == b"hi"


async def test_a_connection_that_the_server_closed_is_no_error(script: Script) -> None:
    """Each answer ends its connection without a word; the next request finds it dead and dials again."""
    async with open_raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as raw:
        for _ in range(3):
            assert (await script.ask("http_get", raw.url("/").encode()))["body"] == b"hi"
