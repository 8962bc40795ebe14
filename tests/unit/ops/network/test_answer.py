from __future__ import annotations

import asyncio

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from spyweb.errors import FetchError
from spyweb.ops.network.answer import Incoming, with_quoted_location

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


def test_bytes_of_a_location_that_are_no_utf8_are_percent_encoded() -> None:
    headers = CIMultiDictProxy(CIMultiDict([("A", "1"), ("location", "/é?q=\udce9\udcff%20"), ("A", "2")]))
    quoted = with_quoted_location(headers)
    assert quoted["Location"] == "/é?q=%E9%FF%20"
    assert quoted.getall("A") == ["1", "2"]


def test_any_other_headers_stay_as_they_are() -> None:
    for given in ({}, {"Location": "/é"}, {"Other": "\udce9"}):
        headers = CIMultiDictProxy(CIMultiDict(given))
        assert with_quoted_location(headers) is headers
