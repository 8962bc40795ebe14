"""`spyweb try`: a page of a real server is fetched and taken apart in a confined process, before there is a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spyweb.settings.tables import TomlTable, parse_table
from tests.fakes.command import spyweb
from tests.fakes.http_server import Answer, Arrived, serving

pytestmark = pytest.mark.timeout(60)

LAMP = '<li class="item"><h2>Lamp</h2><a href="/lamp">more</a><b class="price">30.99 \N{EURO SIGN}</b></li>'
DESK = '<li class="item"><h2>Desk</h2><a href="/desk">more</a><b class="price">90 \N{EURO SIGN}</b></li>'
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.fixture
def site() -> Iterator[str]:
    released = threading.Event()

    def answer(arrived: Arrived) -> Answer | None:
        match arrived.path:
            case "/shop":
                return Answer(200, HTML, f"<ul>{LAMP}{DESK}</ul>".encode())
            case "/data":
                return Answer(200, {"Content-Type": "application/json"}, b'{"a": 1}')
            case "/large":
                return Answer(200, HTML, b"x" * 2048)
            case "/hangs":
                released.wait(30)
        return Answer(404, HTML, b"<p>Not found</p>")

    with serving(answer) as url:
        yield url
        released.set()


def test_the_items_of_a_page_are_a_table_and_the_settings_of_a_monitor_that_finds_them(
    site: str, tmp_path: Path
) -> None:
    answer = spyweb("try", f"{site}/shop", ".item", "title:h2", "price:.price", "link:a@href", "-n", "1", root=tmp_path)
    assert answer.code == 0
    assert answer.lines[0].split() == ["title", "price", "link"]
    assert answer.table == [["Lamp", "30.99 \N{EURO SIGN}", f"{site}/lamp"]]
    counts, _, *settings = answer.err.splitlines()
    assert counts.startswith("2 items in all: HTTP 200, ")
    written = parse_table("\n".join(settings), "config.toml")
    assert isinstance(written, TomlTable)
    assert written.values == {
        "name": "NAME",
        "url": f"{site}/shop",
        "selector": ".item",
        "fields": ["title:h2", "price:.price", "link:a@href"],
        "every": "10m",
        "first": "silent",
    }
    assert list(tmp_path.iterdir()) == [], "nothing is left in the folder"
    found = spyweb("try", f"{site}/shop", ".item", "-n", "1", "-o", "json", root=tmp_path).json
    assert (found["http_status"], found["found"]) == (200, 2)
    assert [(item["text"][:4], item["link"]) for item in found["items"]] == [("Lamp", f"{site}/lamp")]


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("/shop", ".itm"), 1, "nothing found: no element matches .itm (spyweb runs no JavaScript of the page)"),
        (("/data", "li"), 1, "nothing found: the answer is application/json, not HTML"),
        (("/nope", "p"), 1, "status 404: a monitor reports this as not as expected"),
        (("/large", "p"), 1, "spyweb: {site}/large: the response is larger than 0.000976562 MB"),
        (("/hangs", "p"), 1, "spyweb: {site}/hangs: no complete response within 0.2 s"),
        (("://x", "li"), 2, "spyweb: '{site}://x' is no URL: "),
        (("/shop", "li["), 2, "spyweb: 'li[' is not a CSS selector"),
        (("/shop", "li", "title:h2["), 2, "spyweb: 'h2[' is not a CSS selector"),
        (("/shop", "li", ":h2"), 2, 'spyweb: a field has no name: expected "name:selector"'),
        (("/shop", "li", "title:h2", "title:b"), 2, "spyweb: two fields are called 'title'"),
        (("/shop", "li", "title h2"), 0, "'title h2' has no colon, so takes the whole item; did you mean 'title:h2'?"),
        (("/shop", "li", "title:h2", "price:.prce"), 0, "price is empty in every item: check its selector"),
    ],
)
def test_what_is_wrong_is_one_line_and_the_exit_code(
    site: str, tmp_path: Path, words: tuple[str, ...], code: int, line: str
) -> None:
    (tmp_path / "config.toml").write_text('[http]\ntimeout = "200ms"\nmax_body_size = "1KB"\n')
    answer = spyweb("try", f"{site}{words[0]}", *words[1:], root=tmp_path)
    assert answer.code == code
    (said,) = [each for each in answer.err.splitlines() if each.startswith(line.format(site=site))]
    assert answer.out == "" or code == 0 or words[0] == "/nope"
    assert said
