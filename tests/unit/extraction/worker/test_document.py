from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from spyweb.extraction.wire import Extract
from spyweb.extraction.worker.document import ExtractionProblem, Links, _is_wrong, check, extract, find_lines

URL = "http://shop.example/list/"

SHOP = b"""<!doctype html><title>Shop</title><body>
<ul>
  <li class="item sale" data-id="1"><h2> First <b>one</b> </h2><a href="/1">more</a><img src="1.png"><p>9 EUR</p></li>
  <li class="item" data-id="2"><h2>Second</h2><a href="2?x=1">more</a><p>7 EUR</p></li>
  <li class="item" data-id="3"><p></p></li>
</ul>"""

NEWS = b"""<table>
<tr class="athing"><td><a href="item?id=1">One</a></td></tr>
<tr><td class="sub"><span class="score">3 points</span></td></tr>
<tr class="spacer"></tr>
<tr class="athing"><td><a href="item?id=2">Two</a></td></tr>
<tr class="ad"><td>Buy</td></tr>
<tr><td class="sub"><span class="score">5 points</span></td></tr>
</table>"""


def rows(html: bytes, selector: str, *fields: str, content_type: str = "", url: str = URL) -> list[list[str]]:
    """A field is written as in config.toml: `css` or `css@attribute`."""
    wanted = tuple((css, attribute or None) for css, _, attribute in (field.partition("@") for field in fields))
    return list(extract(Extract(len(html), content_type, url, selector, wanted), html))


def column(html: bytes, selector: str, field: str, **more: str) -> list[str]:
    return [value for (value,) in rows(html, selector, field, **more)]


def test_each_item_has_every_field_in_the_order_of_the_page() -> None:
    assert rows(SHOP, ".item", "h2", "a@href", "img@src", "p") == [
        ["First one", "http://shop.example/1", "http://shop.example/list/1.png", "9 EUR"],
        ["Second", "http://shop.example/list/2?x=1", "", "7 EUR"],
        ["", "", "", ""],
    ]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (".item@data-id", ["1", "2", "3"]),  # the item itself goes first
        ("@data-id", ["1", "2", "3"]),  # no selector: the item
        ("li@data-id", ["1", "2", "3"]),
        ("li.sale@data-id", ["1", "", ""]),
        ("p@text", ["9 EUR", "7 EUR", ""]),
        ("@DATA-ID", ["1", "2", "3"]),
        ("@nothing", ["", "", ""]),
        ("ul p", ["9 EUR", "7 EUR", ""]),  # what is around the item may be named
    ],
)
def test_a_field_is_sought_on_the_item_and_then_inside(field: str, values: list[str]) -> None:
    assert column(SHOP, ".item", field) == values


@pytest.mark.parametrize(
    ("selector", "ids"),
    [
        (".item:has(img)", ["1"]),
        (".item:not(.sale)", ["2", "3"]),
        (".item:nth-child(2)", ["2"]),
        (".item:nth-last-child(1)", ["3"]),
        ("li:not(:has(h2, img))", ["3"]),
        ("ul > li[data-id^='2'], .sale", ["1", "2"]),
        ("li, .item", ["1", "2", "3"]),  # each once
        ("body li:is(.sale, [data-id='3'])", ["1", "3"]),
        (".nothing", []),
    ],
)
def test_selectors_of_items(selector: str, ids: list[str]) -> None:
    assert column(SHOP, selector, "@data-id") == ids


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("+ tr .score", ["3 points", ""]),
        ("~ tr .score", ["3 points", "5 points"]),
        ("+ tr + tr@class", ["spacer", ""]),
        ("+ tr.ad + tr .score", ["", "5 points"]),
        ("~ .athing a@href", ["http://shop.example/list/item?id=2", ""]),
        ("a, + tr .score", ["One", "Two"]),  # inside goes first
        ("b, + tr .score", ["3 points", ""]),
        ("+ .score, ~ .ad", ["Buy", "Buy"]),
        ("~ tr@spyweb-item", ["", ""]),
    ],
)
def test_a_selector_that_begins_with_a_combinator_starts_after_the_item(field: str, values: list[str]) -> None:
    assert column(NEWS, ".athing", field) == values


NESTED = b"""<table><tr class=row id=1><td><table><tr class=row id=2><td>in</td><td>deep</td></tr></table></td>
<td><b>out</b></td></tr></table>"""


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("> td + td", ["out", "deep"]),
        (":scope > td + td > b", ["out", ""]),
        ("> b", ["", ""]),
        (":scope@id", ["1", "2"]),
        (":scope td td", ["in", ""]),
        ("td:not(:scope > td)", ["in", ""]),
        ("> b, > td + td", ["out", "deep"]),
        ("> td@spyweb-item", ["", ""]),
    ],
)
def test_a_selector_that_begins_with_a_child_starts_at_the_item(field: str, values: list[str]) -> None:
    assert column(NESTED, ".row", field) == values


def test_items_inside_items_are_items() -> None:
    html = b"<div class=c>a<div class=c>b<div class=d>c</div></div></div>"

    assert rows(html, ".c", "@text", ".c .d") == [["abc", "c"], ["bc", "c"]]


def test_the_base_element_decides_where_links_lead() -> None:
    html = b"<head><base target=x><base href='//cdn.example/a/'><base href='/no/'></head><a href=b>x</a>"

    assert column(html, "a", "@href") == ["http://cdn.example/a/b"]
    assert column(b"<base href=javascript:1><a href=b>", "a", "@href") == ["http://shop.example/list/b"]


def test_only_links_become_absolute() -> None:
    html = b"<a href='/a' data-href='/a' title=' /a '><a href=''><a href>"

    assert rows(html, "a", "@href", "@data-href", "@title") == [
        ["http://shop.example/a", "/a", " /a "],
        ["", "", ""],
        ["", "", ""],
    ]


def test_text_keeps_its_inner_space_and_loses_what_is_around_it() -> None:
    assert column(b"<p>\n a\n  b &nbsp;</p>", "p", "") == ["a\n  b"]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (b"<p>a<p>b", ["a", "b"]),
        (b"<p>a<b>b<i>c</b>d</i></p>", ["abcd"]),
        (b"<table><p>out</p><tr><td>in</table>", ["out"]),
        (b"<p>&lt;&amp;&#8364;&notanentity;&#xD800;", ["<&\u20ac\xacanentity;\ufffd"]),
        (b"<p>a\0b</p", ["ab"]),
        (b"<p>\xff\xfe\xc3", ["\ufffd\ufffd\ufffd"]),
        (b"<p title='open>a", []),
        (b"<!-- <p>a", []),
        (b"<script><p>a</p></script>", []),
        (b"<template><p>a</p></template><p>b", ["b"]),
        (b"", []),
        (b"\0", []),
        (b'{"p": "<p>a"}', ['a"}']),
        (b"%PDF-1.7 \x00\x93\x8c", []),
    ],
)
def test_broken_html_is_read_as_a_browser_reads_it(html: bytes, expected: list[str]) -> None:
    assert column(html, "p", "") == expected


def test_a_page_of_another_charset() -> None:
    assert column("<p>Привет".encode("koi8-r"), "p", "", content_type="text/html; charset=KOI8-R") == ["Привет"]


def test_a_frameset_has_no_body_and_does_no_harm() -> None:
    assert column(b"<frameset><frame src=a></frameset>", "frame", "@src") == ["http://shop.example/list/a"]


@pytest.mark.parametrize(
    "selector", ["", "  ", "div[", "a,", "a,,b", "..x", "> a", "p::before", ":unknown", "a@href", '"']
)
def test_a_selector_that_does_not_parse_is_named(selector: str) -> None:
    with pytest.raises(ExtractionProblem) as found:
        check(selector, of_field=False)

    assert str(found.value) == f"{selector!r} is not a CSS selector"


def test_a_wrong_field_is_told_even_where_there_is_no_item() -> None:
    with pytest.raises(ExtractionProblem, match=r"'b\['"):
        rows(b"", ".nothing", "a", "b[")


@pytest.mark.parametrize("selector", ["+ a", "~ a", "> a", ":scope > a"])
def test_only_a_field_may_begin_with_a_combinator(selector: str) -> None:
    check(selector, of_field=True)
    check("", of_field=True)
    with pytest.raises(ExtractionProblem, match="is not a CSS selector"):
        check(selector, of_field=False)
    with pytest.raises(ExtractionProblem, match="is not a CSS selector"):
        check(f"{selector}[, b", of_field=True)


def test_a_long_selector_is_looked_at_and_not_kept() -> None:
    kept = _is_wrong.cache_info().currsize

    check("a, " * 10_000 + "a", of_field=False)
    with pytest.raises(ExtractionProblem, match="is not a CSS selector"):
        check("a" * 10_000 + "[", of_field=True)

    assert _is_wrong.cache_info().currsize == kept


@pytest.mark.parametrize(
    ("pattern", "text", "lines"),
    [
        ("^Listen ", b"# Listen 80\nListen 80\nListen 81", [1, 2]),
        ("80$", b"Listen 80\r\nListen 81\r\n", [0]),
        (r"^\s*$", b"a\n\n  \nb", [1, 2]),
        ("ä", "b\nä".encode(), [1]),
        (".", b"\xff\n", [0]),
        ("x", b"", []),
        ("", b"", [0]),
    ],
)
def test_it_names_the_lines_that_match(pattern: str, text: bytes, lines: list[int]) -> None:
    assert find_lines(pattern, text) == lines


@pytest.mark.parametrize("pattern", ["(", "(" * 5_000 + ")" * 5_000, "a{99999999999}", "[z-a]"])
def test_what_is_no_regular_expression_is_told(pattern: str) -> None:
    with pytest.raises(ExtractionProblem, match="this is not a regular expression: "):
        find_lines(pattern, b"a")


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
