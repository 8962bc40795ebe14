"""Decode and parse a page: find its items, and read their fields."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from encodings import normalize_encoding
from encodings.aliases import aliases
from functools import cached_property, lru_cache
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError

from spyweb.extraction.wire import Extract

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
    try:
        document = LexborHTMLParser(to_utf8(body, ask.content_type), options=_OPTIONS)
    except SelectolaxError as error:  # it accepts any bytes, so it must be out of memory
        raise MemoryError from error
    links = Links(document, ask.url)
    fields = [_reader(selector, attribute, links) for selector, attribute in ask.fields]
    items = document.css(ask.selector)
    if "," in ask.selector:  # Lexbor yields one twice that two parts of a list match
        items = list({item.mem_id: item for item in items}.values())
    for item in items:
        yield [read(item) for read in fields]


def check(selector: str, *, of_field: bool) -> None:
    """Raise ExtractionProblem for an invalid selector.  A field's may be empty, begin with >, + or ~, hold :scope."""
    if of_field and not selector:
        return
    is_wrong = _is_wrong if len(selector) <= _LONGEST_REMEMBERED else _is_wrong.__wrapped__
    if is_wrong(selector, of_field):
        raise ExtractionProblem(f"{selector!r} is not a CSS selector")


@lru_cache(_REMEMBERED)
def _is_wrong(selector: str, of_field: bool) -> bool:
    parts = split(selector) if of_field else FieldSelector(selector, None, None)
    try:
        for part in (parts.inside, parts.after):
            if part is not None:
                _EMPTY.css_first(part)
    except SelectolaxError:
        return True
    return False


_EMPTY = LexborHTMLParser("", options=_OPTIONS)


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
        return lambda node: node.text().strip()
    name = attribute.lower()
    if name in _LINKS:
        return lambda node: links.absolute(_attribute_of(node, name))
    return lambda node: _attribute_of(node, attribute)


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
    """Find what a selector matches in the elements among the following siblings, so many of them (None: all)."""
    seen, sibling, found = 0, item.next, None
    while sibling is not None and seen != reach and found is None:
        if sibling.is_element_node:
            seen += 1
            found = sibling.css_first(selector)
        sibling = sibling.next
    return found


class Links:
    """Makes the links of one page absolute, as a browser would follow them."""

    def __init__(self, document: LexborHTMLParser, url: str) -> None:
        self._document = document
        self._url = url

    @cached_property  # most pages have no such field
    def _base(self) -> tuple[str, str]:
        """Find the base of the links, which the page's base element may change, and its origin."""
        element = self._document.css_first("base[href]")
        href = element.attributes["href"] if element else None
        base = self._url if href is None else _join(self._url, href.strip(_AROUND).translate(_INSIDE))
        origin = _origin_of(base)
        return (base, origin) if origin else (self._url, _origin_of(self._url))

    def absolute(self, link: str) -> str:
        """Return the absolute link; an empty one stays empty, and one that can't be resolved stays as it is."""
        base, origin = self._base
        link = link.strip(_AROUND).translate(_INSIDE)
        if origin and _SIMPLE_PATH.match(link):  # urljoin is much slower
            return origin + link
        return _join(base, link) if link else ""


def _join(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:
        return link


def _origin_of(url: str) -> str:
    """Return the scheme and host of a URL of the web; nothing for another."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in _BASE_SCHEMES and parts.netloc else ""


def find_lines(pattern: str, text: bytes) -> list[int]:
    """Return the lines, from 0, in which it is found, which may take for ever.  Raises ExtractionProblem."""
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
    for part in _split_list(selector):
        relative = _RELATIVE.match(part)
        if relative:  # it begins with a combinator: the item's mark comes before that
            part = f"[{MARK}] {part[relative.start(1) :]}"
        (after if part.startswith((f"[{MARK}] +", f"[{MARK}] ~")) else inside).append(part)
    following = ", ".join(after)
    reach = None if "~" in following else following.count("+")  # each + takes one step at most
    names_item = any(f"[{MARK}]" in part for part in inside)
    if not after:
        return FieldSelector(", ".join(inside) if names_item else selector, None, None, names_item)
    return FieldSelector(", ".join(inside) if inside else None, following, reach, names_item)


def _split_list(selector: str) -> list[str]:
    """Split a list at the commas that are not in brackets or strings, with the item's mark in place of :scope."""
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


# The encoding of a body: its byte order mark, the header, what the page declares, or else UTF-8.  A mark comes before
# the header, as in browsers: nothing else begins like that.  An unknown label is ignored.

_MARKS = ((codecs.BOM_UTF8, "utf_8"), (codecs.BOM_UTF16_LE, "utf_16_le"), (codecs.BOM_UTF16_BE, "utf_16_be"))
_IN_HEADER = re.compile(r"(?i)charset\s*=[\s\"']*([^\s\"';,]+)")  # one run of blanks: two would be tried in all ways
_IN_PAGE = re.compile(
    rb"(?is)<!--.*?-->"
    rb"|<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([^\s\"'/>;]+)"
    rb"|\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([^\"']+)"
)
_LOOK_AT = 1024  # bytes in which a page must declare its encoding, by HTML's rules

# Codecs of Python that a page may be in, and the labels of the Encoding Standard by which Python does not know them.
# Also by the names of codecs for a subset, which is read as the full encoding that its users mean.
_LABELS = {
    "utf_8": "unicode_1_1_utf_8 unicode11utf8 unicode20utf8",
    "cp866": "",
    **{f"iso8859_{number}": f"iso8859{number}" for number in (2, 3, 4, 5, 10, 13, 14, 16)},
    "iso8859_6": "iso88596 csiso88596e csiso88596i iso_8859_6_e iso_8859_6_i",
    "iso8859_7": "iso88597 sun_eu_greek",
    "iso8859_8": "iso88598 csiso88598e csiso88598i iso_8859_8_e iso_8859_8_i logical visual",
    "iso8859_15": "iso885915 csisolatin9",
    "koi8_r": "koi koi8",
    "koi8_u": "koi8_ru",
    "mac_roman": "csmacintosh mac",
    "mac_cyrillic": "mac_ukrainian",
    "cp874": "iso8859_11 tis_620 dos_874 iso885911 windows_874",
    **dict.fromkeys(("cp1250", "cp1251", "cp1253", "cp1255", "cp1256", "cp1257", "cp1258"), ""),
    "cp1252": "ascii latin_1 iso88591 user_defined",
    "cp1254": "iso8859_9 iso88599",
    "gb18030": "gb2312 gbk csgb2312 gb_2312 gb_2312_80",
    "hz": "",
    "big5hkscs": "big5 cn_big5 x_big5",
    "euc_jp": "cseucpkdfmtjapanese",
    "iso2022_jp": "",
    "cp932": "shift_jis windows_31j",
    "cp949": "euc_kr cseuckr csksc56011987 iso_ir_149 ks_c_5601_1989 ksc_5601 windows_949",
    "iso2022_kr": "",
    "utf_16_be": "unicodefffe",
    "utf_16_le": "utf_16 csunicode iso_10646_ucs_2 ucs_2 unicode unicodefeff",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}
for _codec in _LABELS:
    codecs.lookup(_codec)  # imports it now: a confined process can't


def to_utf8(body: bytes, content_type: str) -> bytes | str:
    """Return the body in a form that a parser of UTF-8 accepts.  Invalid bytes are left to the parser, or replaced."""
    mark, codec = next((each for each in _MARKS if body.startswith(each[0])), (b"", ""))
    if not codec:
        in_header = _IN_HEADER.search(content_type)
        codec = (in_header and _codec_of(in_header[1])) or _codec_of_page(body) or "utf_8"
    text = body[len(mark) :]
    return text if codec == "utf_8" else text.decode(codec, "replace")


def _codec_of_page(body: bytes) -> str | None:
    """Return the first known codec that the page declares.  It can't be UTF-16, since the declaration was readable."""
    for found in _IN_PAGE.finditer(body[:_LOOK_AT]):
        codec = _codec_of((found[1] or found[2] or b"").decode("ascii", "replace"))
        if codec:
            return "utf_8" if codec.startswith("utf_16") else codec
    return None


def _codec_of(label: str) -> str | None:
    name = normalize_encoding(label.strip()).lower().removeprefix("x_")
    name = aliases.get(name, name)
    codec = _CODECS.get(name, name)
    return codec if codec in _LABELS else None
