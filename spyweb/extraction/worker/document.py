"""Decode and parse a page: find its items, and read their fields."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
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


# The encoding of a body: its byte order mark, the header, what the page declares, or else UTF-8.  A mark comes before
# the header, as in browsers: nothing else begins like that.  An unknown label is ignored.

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_IN_HEADER = re.compile(r"(?i)charset\s*=[\s\"']*([^\s\"';,]+)")  # one run of blanks: two would be tried in all ways
_IN_PAGE = re.compile(
    rb"(?is)<!--.*?-->"
    rb"|<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([^\s\"'/>;]+)"
    rb"|\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([^\"']+)"
)
_LOOK_AT = 1024  # bytes in which a page must declare its encoding, by HTML's rules

# Python's codec → the labels that the Encoding Standard knows for it, beside ... -N in all spellings of ISO 8859.
# A subset is read as the full encoding that its users mean: GB 2312 as GB 18030, Latin-1 as windows-1252.
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-ir-101 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-ir-109 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-ir-110 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-ir-144 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i"
    " iso-ir-127 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso_8859-8:1988 visual csiso88598i"
    " iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-ir-157 l6 latin6",
    "iso8859-13": "",
    "iso8859-14": "",
    "iso8859-15": "csisolatin9 l9",
    "iso8859-16": "",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1"
    " iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252 x-user-defined",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5"
    " windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb18030 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "hz": "hz-gb-2312",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022-jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601"
    " windows-949",
    "iso2022-kr": "csiso2022kr iso-2022-kr",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}


def _all_labels() -> dict[str, str]:
    found = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}
    for codec in _LABELS:
        if codec.startswith("iso8859"):
            number = codec.removeprefix("iso8859-")
            found |= dict.fromkeys((codec, f"iso-8859-{number}", f"iso8859{number}", f"iso_8859-{number}"), codec)
    return found


CODECS = _all_labels()
for _codec in _LABELS:
    codecs.lookup(_codec)  # imports it now: a confined process can't


def to_utf8(body: bytes, content_type: str) -> bytes | str:
    """Return the body in a form that a parser of UTF-8 accepts.  Invalid bytes are left to the parser, or replaced."""
    codec, start = _find_codec(body, content_type)
    if codec == "utf-8":
        return body[start:] if start else body
    return body[start:].decode(codec, "replace")


def _find_codec(body: bytes, content_type: str) -> tuple[str, int]:
    """Return the codec, and the position where the text begins."""
    for mark, codec in _MARKS:
        if body.startswith(mark):
            return codec, len(mark)
    return _codec_of_header(content_type) or _codec_of_page(body) or "utf-8", 0


def _codec_of_header(content_type: str) -> str | None:
    found = _IN_HEADER.search(content_type)
    return _codec_of(found[1]) if found else None


def _codec_of_page(body: bytes) -> str | None:
    """Return the first known codec that the page declares.  It can't be UTF-16, since the declaration was readable."""
    for found in _IN_PAGE.finditer(body[:_LOOK_AT]):
        codec = _codec_of((found[1] or found[2] or b"").decode("ascii", "replace"))
        if codec:
            return "utf-8" if codec.startswith("utf-16") else codec
    return None


def _codec_of(label: str) -> str | None:
    return CODECS.get(label.strip().lower())
