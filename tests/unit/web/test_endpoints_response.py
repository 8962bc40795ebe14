"""Whatever a handler returned, the response is a well-formed one."""

from __future__ import annotations

import pytest

from spyweb.endpoints.endpoints import EndpointAnswer
from spyweb.web.endpoints import make_response, sendable


@pytest.mark.parametrize(
    "name",
    [
        b"", b"X A", b"X:A", b"X\r\nSet-Cookie", b"X\0", b"\xc3\xa9", b"Connection", b"transfer-encoding", b"TE",
        b"Keep-Alive", b"Upgrade", b"trailer", b"Proxy-Authenticate", b"Content-Length",
    ],
)  # fmt: skip
def test_a_header_that_may_not_be_sent_is_dropped(name: bytes) -> None:
    assert dict(sendable({name: b"1", b"X-Kept": b"2"})) == {"X-Kept": "2"}


@pytest.mark.parametrize("value", [b"a\r\nX: 1", b"a\n", b"\ra", b"a\0"])
def test_a_value_that_would_begin_another_line_is_dropped(value: bytes) -> None:
    assert dict(sendable({b"X-A": value})) == {}


def test_other_headers_are_sent_as_they_are() -> None:
    headers = {b"X-A": b"", b"Location": b"/a b", b"X-Name": "é".encode()}
    assert dict(sendable(headers)) == {"X-A": "", "Location": "/a b", "X-Name": "é"}


@pytest.mark.parametrize(
    ("body", "kind"), [(b"text", "text/plain; charset=utf-8"), (b"\xff", "application/octet-stream")]
)
def test_a_body_without_a_type_is_text_where_it_is_text(body: bytes, kind: str) -> None:
    assert make_response(EndpointAnswer(200, body)).headers["Content-Type"] == kind


def test_a_type_that_the_handler_gave_stays() -> None:
    response = make_response(EndpointAnswer(200, b"{}", {b"content-type": b"text/html"}))
    assert response.headers.getall("Content-Type") == ["text/html"]


@pytest.mark.parametrize(("status", "is_last"), [(100, False), (199, False), (200, True), (599, True)])
def test_after_a_status_that_announces_another_the_connection_ends(status: int, is_last: bool) -> None:
    response = make_response(EndpointAnswer(status, b""))
    assert response.status == status
    assert (response.keep_alive is not False) is is_last


@pytest.mark.parametrize(
    "cookie",
    [b"spyweb_7979=x", b" spyweb_7979=x; Path=/", b"__Host-spyweb_1=x", b"=spyweb_7979=x", b"spyweb_theme=dark"],
)
def test_no_handler_sets_a_cookie_of_spyweb(cookie: bytes) -> None:
    assert dict(sendable({b"set-Cookie": cookie})) == {}
    assert dict(sendable({b"Set-Cookie": b"basket=spyweb_7979"})) == {"Set-Cookie": "basket=spyweb_7979"}


SANDBOX = "sandbox allow-scripts allow-forms"


@pytest.mark.parametrize(
    ("headers", "policy"),
    [
        ({b"Content-Type": b"TEXT/HTML; charset=utf-8"}, SANDBOX),
        ({b"content-type": b"application/xhtml+xml"}, SANDBOX),
        ({b"Content-Type": b"image/svg+xml"}, SANDBOX),
        ({b"Content-Type": b"text/html", b"content-security-policy": b"default-src 'self'"}, "default-src 'self'"),
        ({b"Content-Type": b"application/json"}, None),
        ({}, None),
    ],
)
def test_what_is_public_and_a_page_has_no_origin_unless_its_script_says_so(
    headers: dict[bytes, bytes], policy: str | None
) -> None:
    response = make_response(EndpointAnswer(200, b"<p>", headers), is_public=True)
    assert response.headers.get("Content-Security-Policy") == policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "X-Content-Type-Options" not in make_response(EndpointAnswer(200, b"<p>", headers)).headers
