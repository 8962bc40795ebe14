"""An HTTP request as a Lua endpoint is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from spyweb.web.endpoints import RequestFields, describe_request


def asked(path: str, method: str = "GET", body: bytes = b"", headers: Any = None) -> RequestFields:
    found = describe_request(make_mocked_request(method, path, headers=headers), body, is_public=False)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "route", "path_args"),
    [
        ("users", b"users", []),
        ("users/", b"users", []),
        ("users/123/profile", b"users", [b"123", b"profile"]),
        ("users//x", b"users", [b"", b"x"]),
        ("users/a%2Fb/%C3%A9%FF", b"users", [b"a/b", b"\xc3\xa9\xff"]),
        ("../secret", b"..", [b"secret"]),
    ],
)
def test_the_address_is_taken_apart_before_it_is_decoded(path: str, route: bytes, path_args: list[bytes]) -> None:
    found = asked(f"/api/v/{path}?x=1")
    assert (found["route"], found["path_args"], found["path"]) == (route, path_args, f"/api/v/{path}")


@pytest.mark.parametrize("path", ["/api/v/", "/api/v//users"])
def test_an_address_without_a_name_names_nothing(path: str) -> None:
    assert not asked(path)["route"]


def test_what_is_public_is_told() -> None:
    request = make_mocked_request("GET", "/api/public/x")
    assert describe_request(request, b"", is_public=True)["is_public"] is True


@pytest.mark.parametrize(
    ("query", "last", "together"),
    [
        ("", {}, {}),
        ("a=1&b=&c&a=2", {b"a": b"2", b"b": b"", b"c": b""}, {b"a": [b"1", b"2"], b"b": [b""], b"c": [b""]}),
        ("q=a+b%20c%26%3D&%C3%A9=%FF", {b"q": b"a b c&=", b"\xc3\xa9": b"\xff"}, None),
        ("a=b=c&&", {b"a": b"b=c"}, {b"a": [b"b=c"]}),
    ],
)
def test_of_repeated_parameters_the_last_counts_and_all_are_there(query: str, last: object, together: object) -> None:
    found = asked(f"/api/v/x?{query}")
    assert found["query"] == last
    assert together is None or found["query_all"] == together


def test_header_names_are_in_lower_case_and_repeated_ones_joined() -> None:
    headers = CIMultiDict([("X-A", "1"), ("x-a", "2"), ("Cookie", "a=1"), ("cookie", "b=2"), ("Accept", "*/*")])
    assert asked("/api/v/x", headers=headers)["headers"] == {"x-a": "1, 2", "cookie": "a=1; b=2", "accept": "*/*"}


@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [("GET", b"", None), ("DELETE", b"", None), ("POST", b"", b""), ("PUT", b"\0\xff", b"\0\xff"), ("GET", b"x", b"x")],
)
def test_a_body_is_bytes_and_missing_only_where_none_is_expected(
    method: str, body: bytes, expected: bytes | None
) -> None:
    assert asked("/api/v/x", method, body).get("body") == expected


@pytest.mark.parametrize(
    ("remote", "address"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("fe80::1%eth0", "fe80::1"), ("::ffff:10.0.0.9", "10.0.0.9")],
)
def test_the_clients_address_is_that_of_the_connection_without_port_or_zone(remote: str, address: str) -> None:
    request = make_mocked_request("GET", "/api/v/x", headers={"X-Forwarded-For": "6.6.6.6"}).clone(remote=remote)
    found = describe_request(request, b"", is_public=False)
    assert found
    assert found["client_ip"] == address
