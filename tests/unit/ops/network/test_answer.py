from __future__ import annotations

import asyncio

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spyweb.errors import FetchError
from spyweb.ops.network.answer import Incoming, led_to, with_location

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def incoming(*pieces: bytes) -> Incoming:
    """What came over a connection, piece by piece."""
    incoming = Incoming(asyncio.get_running_loop())
    incoming.set_response_params()
    for piece in pieces:
        incoming.data_received(piece)
    return incoming


@pytest.mark.parametrize(
    "answer",
    [b"Content-Length: 4\r\n\r\nfour, and more", b"Transfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\nand more"],
)
async def test_bytes_behind_the_end_of_an_answer_only_have_its_connection_closed(answer: bytes) -> None:
    came = incoming(HEAD + answer)
    head, body = await came.read()
    assert (head.code, await body.read()) == (200, b"four")
    assert came.should_close


@pytest.mark.parametrize(
    "pieces", [(CHUNKED, b"zz\r\n"), (CHUNKED + b"4\r\nfour\r\n", b"zz\r\n"), (CHUNKED + b"zz\r\n",)]
)
async def test_a_body_that_goes_wrong_halfway_is_not_waited_for(pieces: tuple[bytes, ...]) -> None:
    _, body = await incoming(*pieces).read()
    with pytest.raises(FetchError, match=r"^Invalid character in chunk size$"):
        await body.read()


async def test_a_head_that_goes_wrong_is_no_answer() -> None:
    came = incoming(b"SSH-2.0-OpenSSH_9.9\r\n\r\nmore")
    with pytest.raises(Exception, match="Bad status line"):
        await came.read()


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/é?q=\udce9\udcff%20", "http://shop.example/%C3%A9?q=%E9%FF%20"),
        ("?sig=a%2Fb%3A%7e+%zz&at=1:2/3", "http://shop.example/a?sig=a%2Fb%3A%7e+%zz&at=1:2/3"),
        ('/b c?d e="ä"#f', "http://shop.example/b%20c?d%20e=%22%C3%A4%22#f"),
        ("HTTPS://Bücher.Example:443/?", "https://xn--bcher-kva.example/"),
        ("//other.example/../x", "http://other.example/x"),
        ("#f", "http://shop.example/a?b=%2F#f"),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("http://[::1", "no-url:http://[::1"),
        ("http://[]@", "no-url:http://[]@"),
        ("http://\u3002../ x", "no-url:http://\u3002../ x"),
        ("http:///x", "http:///x"),
    ],
)
def test_where_a_redirect_leads(location: str, target: str) -> None:
    assert led_to(URL("http://shop.example/a?b=%2F", encoded=True), location) == target


def test_a_location_takes_the_place_of_what_was_there() -> None:
    headers = CIMultiDictProxy(CIMultiDict([("A", "1"), ("location", "/a"), ("A", "2"), ("Location", "/b")]))
    changed = with_location(headers, "/c")
    assert changed.getall("Location") == ["/c"]
    assert changed.getall("A") == ["1", "2"]
