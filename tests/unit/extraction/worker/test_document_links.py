from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from spyweb.extraction.worker.document import Links

PAGE = "https://user.example/shop/list?page=2"


def links(url: str, base: str | None = None) -> Links:
    return Links(LexborHTMLParser("" if base is None else f'<base href="{base}">'), url)


@pytest.mark.parametrize(
    ("link", "absolute"),
    [
        ("/a/b?c#d", "https://user.example/a/b?c#d"),
        ("item/1", "https://user.example/shop/item/1"),
        ("../up", "https://user.example/up"),
        ("/a/../b", "https://user.example/b"),
        ("?page=3", "https://user.example/shop/list?page=3"),
        ("#top", "https://user.example/shop/list?page=2#top"),
        ("//cdn.example/x.png", "https://cdn.example/x.png"),
        ("http://other.example/x", "http://other.example/x"),
        ("  /spaces\n around ", "https://user.example/spaces around"),
        ("mailto:a@b.example", "mailto:a@b.example"),
        ("javascript:void(0)", "javascript:void(0)"),
        ("data:image/png;base64,AA==", "data:image/png;base64,AA=="),
        ("/größe", "https://user.example/größe"),
        ("//ドメイン.example/", "https://ドメイン.example/"),
        ("", ""),
        ("   ", ""),
    ],
)
def test_a_link_is_what_a_browser_would_follow(link: str, absolute: str) -> None:
    assert links(PAGE).absolute(link) == absolute


@pytest.mark.parametrize("link", ["http://[bad", "//[::1", "http://a:b:c/"])
def test_a_link_that_makes_no_sense_stays_as_it_is(link: str) -> None:
    assert link.removeprefix("//") in links(PAGE).absolute(link)


@pytest.mark.parametrize(
    ("base", "absolute"),
    [
        ("https://cdn.example/root/", "https://cdn.example/root/x"),
        ("/static/", "https://user.example/static/x"),
        ("sub/", "https://user.example/shop/sub/x"),
        ("", "https://user.example/shop/x"),
        ("javascript:alert(1)//", "https://user.example/shop/x"),
        ("data:text/html,", "https://user.example/shop/x"),
        ("http://[bad", "https://user.example/shop/x"),
    ],
)
def test_the_base_element_is_respected(base: str, absolute: str) -> None:
    assert links(PAGE, base).absolute("x") == absolute


@pytest.mark.parametrize("url", ["", "not a url", "http://[bad"])
def test_without_a_url_that_makes_sense_links_stay_as_they_are(url: str) -> None:
    assert links(url).absolute("http://h/x") == "http://h/x"
    assert links(url).absolute("/x").endswith("/x")
