"""Parse a page: find its items, and read their fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from spyweb.extraction.wire import Extract
from spyweb.extraction.worker.charset import to_utf8

# Without events a page parses faster, and the code that crashed on hostile `select` elements is not used.
_OPTIONS = int(LexborDocumentOptions.WO_EVENTS)
_LINKS = frozenset(("href", "src"))
_REMEMBERED = 512  # selectors whose check is cached
_LONGEST_REMEMBERED = 1_024  # characters

urlsplit("//ö")  # imports now what it needs for such a host: a confined process can't

_AROUND = "".join(map(chr, range(33)))  # control characters and the space
_INSIDE = str.maketrans("", "", "\t\n\r")
_SIMPLE_PATH = re.compile(r"/(?!/)[^\s\\.]*\Z")
_BASE_SCHEMES = ("http", "https")

Read = Callable[[LexborNode], str]


class ExtractionProblem(Exception):
    """The page or a selector is at fault; the text says why."""


def extract(ask: Extract, body: bytes) -> Iterator[list[str]]:
    """Yield the fields of one item after the other.  Raises ExtractionProblem."""
    check(ask.selector, of_field=False)
    for selector, _ in ask.fields:
        check(selector, of_field=True)
    document = _parse(body, ask.content_type)
    links = Links(document, ask.url)
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


def _reader(selector: str, attribute: str | None, links: Links) -> Read:
    """Return a function that reads one field of an item."""
    find = _finder(selector)
    read = _node_reader(attribute, links)

    def read_field(item: LexborNode) -> str:
        node = find(item)
        return "" if node is None else read(node)

    return read_field


def _node_reader(attribute: str | None, links: Links) -> Read:
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


class Links:
    """Makes the links of one page absolute, as a browser would follow them."""

    def __init__(self, document: LexborHTMLParser, url: str) -> None:
        self._document = document
        self._url = url

    @cached_property  # most pages have no such field
    def _base(self) -> tuple[str, str]:
        """Find the base of the links, which the page's base element may change, and its origin."""
        element = self._document.css_first("base[href]")
        base = _resolve_base(self._url, element.attributes["href"] if element else None)
        return base, _origin_of(base)

    def absolute(self, link: str) -> str:
        """Return the absolute link; an empty one stays empty, and one that can't be resolved stays as it is."""
        base, origin = self._base
        link = link.strip(_AROUND).translate(_INSIDE)
        if origin and _SIMPLE_PATH.match(link):  # urljoin is much slower
            return origin + link
        return _join(base, link) if link else ""


def _resolve_base(url: str, base: str | None) -> str:
    if base is None:
        return url
    resolved = _join(url, base.strip(_AROUND).translate(_INSIDE))
    return resolved if _scheme_of(resolved) in _BASE_SCHEMES else url


def _join(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:
        return link


def _scheme_of(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def _origin_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in _BASE_SCHEMES and parts.netloc else ""


def find_lines(pattern: str, text: bytes) -> list[int]:
    """Return the numbers of the lines, from 0, in which it is found.  Raises ExtractionProblem.

    An expression that takes for ever must not run in the daemon.
    """
    try:
        found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ExtractionProblem(f"this is not a regular expression: {error}") from None
    lines = text.decode("utf-8", "surrogateescape").split("\n")
    return [number for number, line in enumerate(lines) if found.search(line.removesuffix("\r"))]


# Selectors of fields: split into parts for the item and its content, and parts, after + and ~, for what follows it.
# Lexbor accepts neither :scope nor a selector that begins with a combinator.  So the item gets a mark, an attribute,
# while such a selector is tried, and the selector names the mark.

MARK = "spyweb-item"  # an attribute

_TOKEN = re.compile(
    r"""(?s)/\*.*?(?:\*/|\Z) | \\. | "(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'? | [^\\"'/()\[\],]+ | .""", re.VERBOSE
)
_SCOPE = re.compile(r":scope(?![\w-])", re.IGNORECASE)
_RELATIVE = re.compile(rf"(?:\[{MARK}\]\s*)?([>+~])")  # the beginning of a part that starts from the item


class FieldSelector(Struct, frozen=True):
    inside: str | None  # tried on the item and its descendants
    after: str | None  # tried on the item's following siblings and their descendants
    reach: int | None  # how many of those siblings can match; None: all
    names_item: bool = False  # `inside` names the item by its mark


def split(selector: str) -> FieldSelector:
    """Sort the parts of a selector list.  The parser reports what is wrong with them."""
    inside: list[str] = []
    after: list[str] = []
    for part in _parts(selector):
        (after if part.startswith((f"[{MARK}] +", f"[{MARK}] ~")) else inside).append(part)
    following = ", ".join(after)
    reach = None if "~" in following else following.count("+")  # each + takes one step at most
    names_item = any(f"[{MARK}]" in part for part in inside)
    if not after:
        return FieldSelector(", ".join(inside) if names_item else selector, None, None, names_item)
    return FieldSelector(", ".join(inside) if inside else None, following, reach, names_item)


def _parts(selector: str) -> Iterator[str]:
    """Yield the parts, with the item's mark in place of :scope and in front of a combinator."""
    for part in _split_list(selector):
        relative = _RELATIVE.match(part)
        yield f"[{MARK}] {part[relative.start(1) :]}" if relative else part


def _split_list(selector: str) -> list[str]:
    """Split a list at the commas that are not in brackets or strings."""
    parts, depth, in_attribute = [""], 0, False
    for token in _TOKEN.findall(selector):
        depth += token in ("(", "[")
        depth -= token in (")", "]")
        in_attribute = token == "[" or (in_attribute and token != "]")
        if token == "," and depth == 0:
            parts.append("")
        elif not token.startswith("/*"):
            parts[-1] += token if in_attribute or token[0] in "\"'\\" else _SCOPE.sub(f"[{MARK}]", token)
    return [part.strip() for part in parts]
