"""Parse a page: find its items, and read their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from spyweb.extraction.wire import Extract
from spyweb.extraction.worker.charset import to_utf8
from spyweb.extraction.worker.links import Links
from spyweb.extraction.worker.selectors import MARK, split

# Without events a page parses faster, and the code that crashed on hostile `select` elements is not used.
_OPTIONS = int(LexborDocumentOptions.WO_EVENTS)
_LINKS = frozenset(("href", "src"))
_REMEMBERED = 512  # selectors whose check is cached
_LONGEST_REMEMBERED = 1_024  # characters

Read = Callable[[LexborNode], str]


class ExtractionProblem(Exception):
    """The page or a selector is at fault; the text says why."""


def extract(ask: Extract, body: bytes) -> Iterator[list[str]]:
    """Yield the fields of one item after the other.  Raises ExtractionProblem."""
    check(ask.selector, of_field=False)
    for selector, _ in ask.fields:
        check(selector, of_field=True)
    document = _parse(body, ask.content_type)
    links = _LazyLinks(document, ask.url)
    fields = [_reader(selector, attribute, links) for selector, attribute in ask.fields]
    for item in _find_items(document, ask.selector):
        yield [read(item) for read in fields]


def check(selector: str, *, of_field: bool) -> None:
    """Raise ExtractionProblem for an invalid selector.

    A field's may be empty, begin with >, + or ~, and hold :scope.
    """
    if of_field and not selector:
        return
    is_wrong = _is_field_wrong if of_field else _is_wrong
    if is_wrong(selector) if len(selector) <= _LONGEST_REMEMBERED else is_wrong.__wrapped__(selector):
        raise ExtractionProblem(f"{selector!r} is not a CSS selector")


@lru_cache(_REMEMBERED)
def _is_field_wrong(selector: str) -> bool:
    parts = split(selector)
    return any(part is not None and _is_wrong.__wrapped__(part) for part in (parts.inside, parts.after))


@lru_cache(_REMEMBERED)
def _is_wrong(selector: str) -> bool:
    try:
        _EMPTY.css_first(selector)
    except SelectolaxError:
        return True
    return False


_EMPTY = LexborHTMLParser("", options=_OPTIONS)


def _parse(body: bytes, content_type: str) -> LexborHTMLParser:
    try:
        return LexborHTMLParser(to_utf8(body, content_type), options=_OPTIONS)
    except SelectolaxError as error:  # it accepts any bytes, so it must be out of memory
        raise MemoryError from error


def _find_items(document: LexborHTMLParser, selector: str) -> list[LexborNode]:
    """Return the items in the order of the page, each once: Lexbor yields one twice that two parts of a list match."""
    found = document.css(selector)
    return list({item.mem_id: item for item in found}.values()) if "," in selector else found


class _LazyLinks:
    """Looks for the base element when the first link needs it."""

    def __init__(self, document: LexborHTMLParser, url: str) -> None:
        self._document = document
        self._url = url
        self._links: Links | None = None

    def absolute(self, link: str) -> str:
        if self._links is None:
            base = self._document.css_first("base[href]")
            self._links = Links(self._url, base.attributes["href"] if base else None)
        return self._links.absolute(link)


def _reader(selector: str, attribute: str | None, links: _LazyLinks) -> Read:
    """Return a function that reads one field of an item."""
    find = _finder(selector)
    read = _node_reader(attribute, links)

    def read_field(item: LexborNode) -> str:
        node = find(item)
        return "" if node is None else read(node)

    return read_field


def _node_reader(attribute: str | None, links: _LazyLinks) -> Read:
    if attribute is None or attribute == "text":
        return _text_of
    name = attribute.lower()
    if name in _LINKS:
        return lambda node: links.absolute(_attribute_of(node, name))
    return lambda node: _attribute_of(node, attribute)


def _text_of(node: LexborNode) -> str:
    return node.text().strip()


def _attribute_of(node: LexborNode, name: str) -> str:
    attributes = node.attributes
    return attributes.get(name) or attributes.get(name.lower()) or ""


def _finder(selector: str) -> Callable[[LexborNode], LexborNode | None]:
    if not selector:
        return lambda item: item
    parts = split(selector)
    inside, after = parts.inside, parts.after
    if after is None and not parts.names_item:
        return lambda item: item.css_first(selector)  # the item itself is a candidate, and the first

    def find(item: LexborNode) -> LexborNode | None:
        item.attrs[MARK] = ""
        try:
            found = item.css_first(inside) if inside else None
            return _find_after(item, after, parts.reach) if found is None and after else found
        finally:
            del item.attrs[MARK]

    return find


def _find_after(item: LexborNode, selector: str, reach: int | None) -> LexborNode | None:
    for sibling in _siblings_after(item, reach):
        found = sibling.css_first(selector)
        if found is not None:
            return found
    return None


def _siblings_after(item: LexborNode, most: int | None) -> Iterator[LexborNode]:
    """Yield the elements among the following siblings."""
    seen, sibling = 0, item.next
    while sibling is not None and seen != most:
        if sibling.is_element_node:
            seen += 1
            yield sibling
        sibling = sibling.next
