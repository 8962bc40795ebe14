"""Decode a body: by its byte order mark, the header, what the page declares, or else as UTF-8.

A mark takes precedence over the header, as in browsers: nothing else begins like that.  An unknown label is ignored.
"""

from __future__ import annotations

import codecs
import re

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
