from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable

import brotli
import pytest

from spyweb.errors import FetchError
from spyweb.ops.network.decoding import MOST_STREAMS, STEP, Decoder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PAGE = b"<p>a page</p>" * 100_000


def bare_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


COMPRESSED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("GZip", gzip.compress),
    ("identity, gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", bare_deflate),
    ("br", brotli.compress),
    ("zstd", zstd.compress),
]
in_each_encoding = pytest.mark.parametrize(
    ("encoding", "compress"), COMPRESSED, ids=[f"{name} {make.__name__}" for name, make in COMPRESSED]
)


def decoded(encoding: str, data: bytes, size: int = 16_384) -> bytes:
    decoder = Decoder([encoding])
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    body = b"".join(step for piece in pieces for step in decoder.decode(piece))
    decoder.finish()
    return body


@in_each_encoding
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_body_is_unpacked_however_it_is_cut_into_pieces(
    encoding: str, compress: Callable[[bytes], bytes], size: int
) -> None:
    assert decoded(encoding, compress(PAGE), size) == PAGE


@in_each_encoding
def test_an_empty_page_may_be_compressed(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert decoded(encoding, compress(b"")) == b""


@in_each_encoding
@pytest.mark.parametrize("lacking", [1, 5])
def test_a_stream_that_was_cut_is_no_body(encoding: str, compress: Callable[[bytes], bytes], lacking: int) -> None:
    with pytest.raises(FetchError, match=r"^the body ends before its [a-z-]+ stream does$") as error:
        decoded(encoding, compress(PAGE)[:-lacking])
    assert error.value.kind == "http"


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_streams_may_follow_each_other(encoding: str, compress: Callable[[bytes], bytes], size: int) -> None:
    streams = compress(b"one ") + compress(b"") + compress(PAGE)
    assert decoded(encoding, streams, size) == b"one " + PAGE
    with pytest.raises(FetchError, match="ends before"):
        decoded(encoding, streams[:-1], size)


def test_streams_without_end_are_given_up() -> None:
    with pytest.raises(FetchError, match="more than 10000 gzip streams"):
        decoded("gzip", gzip.compress(b"") * (MOST_STREAMS + 1))


@in_each_encoding
def test_what_unpacks_to_much_comes_in_steps(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    steps = list(Decoder([encoding]).decode(compress(bytes(8 * STEP))))
    assert sum(map(len, steps)) == 8 * STEP
    assert max(map(len, steps)) <= 4 * STEP


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "br", "zstd"])
def test_a_body_that_is_not_what_its_header_says_is_http(encoding: str) -> None:
    with pytest.raises(FetchError, match=f"^the body is not {encoding}, as its header says$") as error:
        decoded(encoding, b"<p>a page that nobody has compressed")
    assert error.value.kind == "http"


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("refuse", [b"\n", b"\r\n", bytes(100), b"<!-- 0.1 s \x1f -->"])
def test_what_follows_a_gzip_stream_and_begins_no_other_is_left_alone(refuse: bytes, size: int) -> None:
    assert decoded("gzip", gzip.compress(PAGE) + refuse, size) == PAGE


@pytest.mark.parametrize(("encoding", "compress"), [("br", brotli.compress), ("zstd", zstd.compress)])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_with_others_it_is_http(encoding: str, compress: Callable[[bytes], bytes], size: int) -> None:
    with pytest.raises(FetchError, match=f"the body is not {encoding}|ends before its {encoding}"):
        decoded(encoding, compress(PAGE) + b"<!-- 0.1 s -->", size)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "compress", "br, gzip"])
def test_an_encoding_that_nobody_decodes_is_http(encoding: str) -> None:
    with pytest.raises(FetchError, match=f"^content-encoding '{encoding}' is not supported$") as error:
        decoded(encoding, gzip.compress(gzip.compress(PAGE)))
    assert error.value.kind == "http"


@pytest.mark.parametrize(
    "headers", [["br"] * 11, [",".join(["br"] * 20_000)], [",".join(["identity"] * 11)], ["," * 60_000], [",", "," * 9]]
)
def test_a_body_that_was_compressed_very_many_times_is_http(headers: list[str]) -> None:
    decoder = Decoder(headers)
    with pytest.raises(FetchError, match=r"^the body has more than 10 content-encodings$") as error:
        list(decoder.decode(b"x"))
    assert error.value.kind == "http"


@pytest.mark.parametrize("headers", [["gzip"] + ["identity"] * 9, [", ,,gzip,,,,,,"]])
def test_ten_words_are_as_many_as_anybody_says(headers: list[str]) -> None:
    assert b"".join(Decoder(headers).decode(gzip.compress(PAGE))) == PAGE


def test_the_headers_of_an_encoding_count_together() -> None:
    with pytest.raises(FetchError, match="'gzip, br' is not supported"):
        list(Decoder(["gzip", "br"]).decode(b"x"))


@pytest.mark.parametrize(
    "headers", [[], [""], ["identity"], ["Identity", "identity"], ["utf-8"], ["none, aws-chunked"]]
)
def test_without_an_encoding_the_body_is_as_it_came(headers: list[str]) -> None:
    decoder = Decoder(headers)
    assert list(decoder.decode(b"\x1f\x8b")) == [b"\x1f\x8b"]
    decoder.finish()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "unheard-of"])
def test_a_body_that_never_comes_may_have_any_encoding(encoding: str) -> None:
    assert decoded(encoding, b"") == b""
