"""Any bytes at all, as a page: the extractor process stays alive, and answers with items or with one clear line."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spyweb.clock import RealClock
from spyweb.errors import ExtractionError
from spyweb.extraction.extractor import Extractor, Page, open_extractor
from spyweb.model import Field, JobId

FEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

TAGS = [
    "a", "b", "p", "div", "li", "ul", "table", "tr", "td", "tbody", "caption", "select", "option", "selectedcontent",
    "optgroup", "svg", "math", "mi", "mtext", "foreignObject", "desc", "template", "frameset", "frame", "noscript",
    "script", "style", "title", "textarea", "plaintext", "form", "input", "button", "base", "meta", "html", "head",
    "body", "br", "font", "nobr", "x-y", "annotation-xml", "isindex", "image", "rp", "ruby",
]  # fmt: skip
SELECTOR_PARTS = [
    "a", "b", "*", "p", "svg", ".c", "#i", "[href]", "[x='y' i]", ":has(", ":not(", ":is(", ":nth-child(2n+1", ")",
    " ", " > ", " + ", " ~ ", "+", "~", ",", ":", "::", "\\", '"', "'", "/*", "*/", "[", "]", "(", "|", "@", ":root",
    ":empty", ":lexbor-contains('a')", "\0", "é", "{", "}", ";", "<!--", "2", "n", "-",
]  # fmt: skip

attributes = st.sampled_from(["", " href=/x", " class=c id=i", " x='", ' y="', " =", " charset=utf-16", "/", " \0"])
opened = st.builds("<{}{}>".format, st.sampled_from(TAGS), attributes)
closed = st.builds("</{}>".format, st.sampled_from(TAGS))
other = st.sampled_from(["<!--", "-->", "<![CDATA[", "]]>", "<!doctype html>", "&amp", "&#0;", "<", "</", "<?", "\0"])
soup = st.lists(st.one_of(opened, opened, closed, other, st.text(max_size=5)), max_size=60).map("".join)
pages = st.one_of(st.binary(max_size=300), soup.map(str.encode), soup.map(lambda text: text.encode("utf-16")))
selectors = st.one_of(
    st.sampled_from(["*", "p, b", "div:has(a)", ":not(p)", "svg *", "tr"]),
    st.lists(st.sampled_from(SELECTOR_PARTS), max_size=8).map("".join),
    st.text(max_size=20),
)
content_types = st.one_of(
    st.none(), st.sampled_from(["text/html; charset=gbk", "x; charset=utf-16be", "x; charset=hz"]), st.text(max_size=30)
)
fields = st.lists(
    st.tuples(selectors, st.sampled_from([None, "text", "href", "src", "class", "", "é"])), max_size=4
).map(
    lambda found: tuple(
        Field(name=str(number), selector=selector, attribute=attribute)
        for number, (selector, attribute) in enumerate(found)
    )
)


@pytest.fixture(scope="module")
def loop() -> Iterator[AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(scope="module")
def extractor(loop: AbstractEventLoop) -> Iterator[Extractor]:
    opened = open_extractor(RealClock())
    yield loop.run_until_complete(opened.__aenter__())
    loop.run_until_complete(opened.__aexit__(None, None, None))


def ask(loop: AbstractEventLoop, extractor: Extractor, page: Page) -> tuple[list[dict[str, str]], str | None]:
    """The items, or what the problem is."""
    try:
        return loop.run_until_complete(extractor.extract(page)), None
    except ExtractionError as error:
        return [], str(error)


@given(
    body=pages,
    content_type=content_types,
    url=st.one_of(st.just("http://h/"), st.text(max_size=20)),
    selector=selectors,
    fields=fields,
)
@example(body=b"<div></div>\n", content_type=None, url="", selector="a:has(+ b)", fields=())
@FEW
def test_any_page_is_answered(
    loop: AbstractEventLoop,
    extractor: Extractor,
    body: bytes,
    content_type: str | None,
    url: str,
    selector: str,
    fields: tuple[Field, ...],
) -> None:
    page = Page(job=JobId("shop"), body=body, content_type=content_type, url=url, selector=selector, fields=fields)

    items, problem = ask(loop, extractor, page)

    assert problem is None or problem.endswith("is not a CSS selector")
    assert all(list(item) == [field.name for field in fields] for item in items)


@given(selector=st.lists(st.sampled_from(SELECTOR_PARTS), max_size=30).map("".join))
@FEW
def test_a_selector_that_was_found_right_is_taken(loop: AbstractEventLoop, extractor: Extractor, selector: str) -> None:
    problem = loop.run_until_complete(extractor.find_selector_problem(selector, of_field=True))
    field = Field(name="x", selector=selector)
    page = Page(job=JobId("shop"), body=b"<p><b>a</b><i>c", content_type=None, url="", selector="*", fields=(field,))

    assert ask(loop, extractor, page)[1] == problem
