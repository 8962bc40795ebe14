from __future__ import annotations

import pytest

from spyweb import limits
from spyweb.errors import FetchError
from spyweb.limits import AUTHORITY, HOST
from spyweb.model import MIB
from spyweb.ops.network.request import (
    FetchRequest,
    check_authority,
    check_name,
    clean_headers,
    fetch_of,
    parse_method,
    parse_proxy,
    parse_url,
    read_url,
    without_password,
)
from spyweb.settings.sections import HttpSettings


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (b"http://example.com", "http://example.com"),
        (b"HTTPS://EXAMPLE.com:444/a?b=c d#e", "https://example.com:444/a?b=c%20d#e"),
        (b"http://a/?sig=a%2Fb%3a%7E+%zz%&at=1:2/3", "http://a/?sig=a%2Fb%3a%7E+%zz%&at=1:2/3"),
        ("http://me:s%2F@a/?q=ä'\"<>#x?y".encode(), "http://me:s%2F@a/?q=%C3%A4%27%22%3C%3E#x?y"),
        ("http://bücher.example/ü".encode(), "http://xn--bcher-kva.example/%C3%BC"),
        (b"http://a/%2F%20", "http://a/%2F%20"),
        (b" http://a/b  ", "http://a/b"),
        (b" http://a/b?c ", "http://a/b?c"),
    ],
)
def test_an_address_is_read_as_a_browser_would(text: bytes, url: str) -> None:
    assert str(parse_url(text)) == url


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"http://",
        b"http:///path",
        b"//example.com",
        b"ws://example.com",
        b"tcp://example.com",
        b"http://[::1",
        b"http://[]@",
        b"http://a:port",
        b"http://a:99999",
        b"http://\xff/",
        b"http://a/\x00",
        b"http://a/ HTTP/1.1\r\nX: y",
        b"http://" + b"a" * limits.URL,
        b"http://" + b"a" * 254,
        "http://{}/".format("\u4e00" * 4_000).encode(),
        "http://{}@a/".format("a" + "\u0301\u0327" * 4_000).encode(),
    ],
)
def test_what_is_no_web_address_is_http(text: bytes) -> None:
    with pytest.raises(FetchError, match=r"^bad URL: ") as error:
        parse_url(text)
    assert error.value.kind == "http"


@pytest.mark.parametrize("text", [b"http://p:3128", b"https://me:secret@p", b"socks4a://p", b"socks5h://me:x@p:1"])
def test_a_proxy_is_http_https_or_socks(text: bytes) -> None:
    assert str(parse_proxy(text)) == text.decode()


@pytest.mark.parametrize(
    "text", [b"socks://p:1080", b"socks5:p", b"p:3128", b"ftp://p", b"http://p\r\n", b"socks5h://" + b"p" * 254]
)
def test_any_other_proxy_is_proxy(text: bytes) -> None:
    with pytest.raises(FetchError) as error:
        parse_proxy(text)
    assert error.value.kind == "proxy"


@pytest.mark.parametrize("scheme", ["http", "socks4", "socks4a", "socks5", "socks5h"])
def test_a_proxys_name_is_measured_before_it_is_encoded(scheme: str) -> None:
    with pytest.raises(FetchError, match=r"^bad proxy: a host name has 300 characters, at most 253 are allowed$"):
        parse_proxy(f"{scheme}://{chr(0x4E00) * 300}".encode())


def test_passwords_are_not_shown() -> None:
    assert without_password(parse_url(b"http://me:secret@a:1/b")) == "http://a:1/b"


@pytest.mark.parametrize("host", ["xn--", "xn--0.invalid", "a.xn--.b"])
def test_passwords_are_not_shown_with_a_host_that_is_bad_punycode(host: str) -> None:
    assert without_password(parse_url(f"http://me:secret@{host}/".encode())) == f"http://{host}/"


@pytest.mark.parametrize(("text", "method"), [(b"get", "GET"), (b"PROPFIND", "PROPFIND"), (b"M-SEARCH", "M-SEARCH")])
def test_a_method_is_any_word(text: bytes, method: str) -> None:
    assert parse_method(text) == method


@pytest.mark.parametrize("text", [b"", b"GET /", b"GET\r\n", b"CONNECT", b"connect", b"\xff", b"A" * 65])
def test_a_method_that_could_break_the_request_is_http(text: bytes) -> None:
    with pytest.raises(FetchError, match="bad method"):
        parse_method(text)


def test_headers_go_out_as_they_are_but_for_those_the_client_must_say() -> None:
    given = {b"X-A": b" caf\xc3\xa9\t", b"Content-Length": b"3", b"transfer-encoding": b"chunked", b"Host": b"b"}
    assert clean_headers(given) == {"X-A": "café", "Host": "b"}
    assert clean_headers({b"Expect": b"100-continue"}) == {}


def test_as_many_headers_go_out_as_a_server_takes() -> None:
    assert len(clean_headers({b"X-%d" % number: b"1" for number in range(256)})) == 256
    with pytest.raises(FetchError, match=r"^a request has 257 headers, at most 256 are allowed$") as error:
        clean_headers({b"X-%d" % number: b"1" for number in range(257)})
    assert error.value.kind == "http"


def test_headers_are_measured_together() -> None:
    assert clean_headers({b"X": b"a" * 65_535})
    with pytest.raises(FetchError, match=r"^the header block of a request has 65537 bytes, at most 65536 are allowed$"):
        clean_headers({b"X": b"a" * 65_536})
    with pytest.raises(FetchError, match="the header block of a request has 80004 bytes"):
        clean_headers({b"A": b"a" * 40_000, b"BB": b"\x00" * 40_000, b"C": b""})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"X", b"a\r\nY: b"),
        (b"X", b"a\nb"),
        (b"X", b"a\x00b"),
        (b"X", b"a\x7f"),
        (b"X", b"\xff"),
        (b"X: y\r\nZ", b"a"),
        (b"X ", b"a"),
        (b"X:", b"a"),
        (b"", b"a"),
        (b"\xc3\xa9", b"a"),
    ],
)
def test_a_header_that_could_begin_another_is_http(name: bytes, value: bytes) -> None:
    with pytest.raises(FetchError) as error:
        clean_headers({name: value})
    assert error.value.kind == "http"
    assert "b'" not in str(error.value)


def test_a_request_goes_out_within_the_limits() -> None:
    settings, request = HttpSettings(), FetchRequest(url=b"http://shop.example/")
    assert fetch_of(request, settings, None).largest == 10 * MIB
    assert fetch_of(request, settings, 5 * MIB).largest == 5 * MIB
    assert fetch_of(FetchRequest(url=request.url, max_body_size=0.5), settings, 5 * MIB).largest == MIB // 2
    assert fetch_of(FetchRequest(url=request.url, max_body_size=1e305), settings, 5 * MIB).largest == 5 * MIB
    assert fetch_of(FetchRequest(url=request.url, timeout_s=1e9), settings, None).timeout_s == 86_400
    assert fetch_of(FetchRequest(url=request.url, proxy=b""), settings, None).proxy is None
    with pytest.raises(FetchError):
        fetch_of(FetchRequest(url=b"nowhere"), settings, None)


LONGEST = f"{'a' * 63}." * 3 + "a" * 61
MARKS = "a" + "\u0301\u0327" * AUTHORITY  # normalizing them costs the square of their number


@pytest.mark.parametrize("host", ["a" * 254, "ü" * 254, "\u4e00" * 4_000, MARKS])
@pytest.mark.parametrize("url", ["http://{}/", "//{}", "HTTP://me:x@{}:80?q", " ht\ttp:/\n/{}#f", "\x01x+y-z.1://@{}/"])
def test_a_host_that_is_longer_than_any_name_is_not_encoded(url: str, host: str) -> None:
    with pytest.raises(ValueError, match=f"^a host name has {len(host)} characters, at most 253 are allowed$"):
        read_url(url.format(host))


@pytest.mark.parametrize("url", [f"http://{LONGEST}/", f"http://me:{'x' * 4_000}@{LONGEST}:8080/", "http://[fe80::1]/"])
def test_the_longest_name_is_one(url: str) -> None:
    assert len(LONGEST) == HOST
    assert str(read_url(url)) == url


@pytest.mark.parametrize("url", [f"/a//{'b' * 300}", f"a//{'ü' * 300}", f"mailto:{'ü' * 300}", f"?q=//{'b' * 300}"])
def test_only_a_host_is_as_short_as_a_name(url: str) -> None:
    check_authority(url)


def test_a_name_is_measured_again_once_it_is_encoded() -> None:
    with pytest.raises(ValueError, match="a host name has 430 characters"):
        read_url(f"http://{'ü-.' * 42}ü--")
    with pytest.raises(ValueError, match="a host name has 254 characters"):
        check_name("a" * 254)


def test_nothing_else_beside_the_host_is_normalized_however_long_it_is() -> None:
    with pytest.raises(ValueError, match=f"^the authority of a URL has {len(MARKS) + 2} characters, at most 1024 are"):
        read_url(f"http://{MARKS}@a/")
