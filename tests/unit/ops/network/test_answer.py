from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spyweb.ops.network.connector import led_to, with_location


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


def test_a_location_takes_the_place_of_what_was_there() -> None:
    headers = CIMultiDictProxy(CIMultiDict([("A", "1"), ("location", "/a"), ("A", "2"), ("Location", "/b")]))
    changed = with_location(headers, "/c")
    assert changed.getall("Location") == ["/c"]
    assert changed.getall("A") == ["1", "2"]
