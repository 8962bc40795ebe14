from __future__ import annotations

import asyncio

import pytest
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from spyweb.errors import FetchError
from spyweb.limits import HEADER_BLOCK, HEADERS
from spyweb.ops.network.connector import Incoming, led_to

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def incoming(*pieces: bytes) -> Incoming:
    """What came over a connection, piece by piece."""
    incoming = Incoming(asyncio.get_running_loop())
    incoming.set_response_params(max_line_size=HEADER_BLOCK, max_field_size=HEADER_BLOCK, max_headers=HEADERS)
    for piece in pieces:
        incoming.data_received(piece)
    return incoming


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


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


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\nLink: </a>\n\n"
WHOLE = HEAD + b"Content-Length: 4\r\n\r\nfour"


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("before", [b"", b"\r\n" * 5, CONTINUE * 10, HINTS * 10, CONTINUE + HINTS])
async def test_a_few_interim_answers_are_passed_over(before: bytes, size: int) -> None:
    came = incoming(*pieces_of(before + WHOLE, size))
    head, body = await came.read()
    assert (head.code, await body.read()) == (200, b"four")
    assert not came.should_close


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("interim", [CONTINUE, HINTS, b"\r\n\r\n", b"\n"])
async def test_interim_answers_without_end_are_no_answer(interim: bytes, size: int) -> None:
    came = incoming(*pieces_of(interim * 5_000, size))
    assert not came._buffer
    assert came.should_close
    with pytest.raises(HttpProcessingError, match=r"more than 10 interim answers before the answer"):
        await came.read()


@pytest.mark.parametrize("size", [1_000, 1 << 20])
@pytest.mark.parametrize(
    "head", [b"Set-Cookie: %s\r\n" % (b"x" * 30_000) * 3, b"X: " + b"x" * 66_000, b"A: b\r\n" * 12_000], ids=len
)
async def test_a_head_has_so_many_bytes_in_all(head: bytes, size: int) -> None:
    came = incoming(*pieces_of(HEAD + head + b"\r\n\r\n", size))
    with pytest.raises(HttpProcessingError, match=r"the head of the answer has more than 65536 bytes|Too many headers"):
        await came.read()
    assert came.should_close


async def test_blank_lines_without_end_are_no_answer() -> None:
    came = incoming(b"\r" * 70_000)
    with pytest.raises(HttpProcessingError):
        await came.read()


@pytest.mark.parametrize("cut", range(1, 5))
async def test_a_body_is_no_part_of_a_head_that_ends_in_another_piece(cut: int) -> None:
    head = HEAD + b"X: " + b"x" * 60_000 + b"\r\nContent-Length: 9000\r\n\r\n"
    came = incoming(head[:-cut], head[-cut:] + b"\n\n" * 4_500)
    message, body = await came.read()
    assert (message.code, await body.read()) == (200, b"\n\n" * 4_500)
    assert not came.should_close


@pytest.mark.parametrize("size", [5, 16_384, 1 << 20])
async def test_chunks_that_carry_next_to_nothing_are_given_up(size: int) -> None:
    came = incoming(CHUNKED, *pieces_of(b"1\r\na\r\n" * 20_000, size))
    _, body = await came.read()
    with pytest.raises(FetchError, match=r"^the body has too many chunks: \d{5} for \d{5} bytes$"):
        await body.read()
    assert body.total_bytes < 13_500


@pytest.mark.parametrize(
    "frame",
    [b"5;" + b"a=b;" * 300_000, b"5;" + b"x" * 300 + b"\r\nhello\r\n", b"0" * 70_000 + b"5\r\nhello\r\n"],
    ids=len,
)
async def test_what_stands_between_chunks_has_an_end(frame: bytes) -> None:
    came = incoming(CHUNKED, *pieces_of(frame * (2_000_000 // len(frame)), 16_384))
    _, body = await came.read()
    assert came.should_close
    with pytest.raises(FetchError, match=r"^the body has \d+ bytes beside its content$"):
        await body.read()


@pytest.mark.parametrize(("chunk", "times"), [(b"1\r\na\r\n", 9_999), (b"14\r\n" + b"a" * 20 + b"\r\n", 40_000)])
async def test_small_chunks_are_a_body_all_the_same(chunk: bytes, times: int) -> None:
    came = incoming(CHUNKED)
    _, body = await came.read()
    read = 0
    for piece in pieces_of(chunk * times + b"0\r\n\r\n", 1 << 17):
        came.data_received(piece)
        while body._buffer:
            read += len(await body.read(1 << 16))
    assert body.is_eof()
    assert read == times * chunk.count(b"a")


async def test_answers_that_nobody_asked_for_close_the_connection() -> None:
    came = incoming(WHOLE)
    await came.read()
    came.data_received(WHOLE * 100)
    assert came.should_close
    assert not came._buffer


async def test_a_connection_is_counted_anew_for_each_answer() -> None:
    came = incoming(CONTINUE * 10 + WHOLE)
    await came.read()
    came.set_response_params(max_line_size=HEADER_BLOCK, max_field_size=HEADER_BLOCK, max_headers=HEADERS)
    came.data_received(CONTINUE * 10 + WHOLE)
    assert (await came.read())[0].code == 200


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
        ("/" + "x" * 8_192, "no-url:a Location has 8193 bytes, at most 8192 are allowed"),
        ("/" + "é" * 4_096, "no-url:a Location has 8193 bytes, at most 8192 are allowed"),
        ("//" + "\u4e00" * 2_000, "no-url:a host name has 2000 characters, at most 253 are allowed"),
        ("http://" + "a" * 254, "no-url:a host name has 254 characters, at most 253 are allowed"),
    ],
)
def test_where_a_redirect_leads(location: str, target: str) -> None:
    assert led_to(URL("http://shop.example/a?b=%2F", encoded=True), location) == target
