from __future__ import annotations

import codecs

import pytest

from spyweb.extraction.worker.document import _codec_of, to_utf8

TEXT = "<p>Grüße"
META = b'<meta http-equiv="Content-Type" content="text/html; charset=%s">'


def read(body: bytes, content_type: str = "") -> str:
    found = to_utf8(body, content_type)
    return found if isinstance(found, str) else found.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "content_type",
    ["text/html; charset=ISO-8859-1", 'text/html;charset="latin1"', "text/html; CHARSET = windows-1252 ; x=y"],
)
def test_the_header_says_it(content_type: str) -> None:
    assert read(TEXT.encode("latin-1"), content_type) == TEXT


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_byte_order_mark_says_it_whatever_the_header_says(codec: str) -> None:
    mark = codecs.BOM_UTF16_BE if codec == "utf-16-be" else b""

    assert read(mark + TEXT.encode(codec), "text/html; charset=koi8-r") == TEXT


@pytest.mark.parametrize(
    "declaration",
    [
        META % b"windows-1251",
        b"<META CharSet = 'windows-1251' >",
        b'<?xml version="1.0" encoding="windows-1251"?>',
        b'<!-- <meta charset="utf-8"> --><meta charset=cp1251>',
        b"<meta charset=klingon><meta charset=cp1251>",
    ],
)
def test_the_page_says_it(declaration: bytes) -> None:
    assert read(declaration + "Привет".encode("cp1251")).endswith("Привет")


def test_a_header_full_of_blanks_is_read_once() -> None:
    """In all the ways in which its blanks can be shared out it would take 40 s."""
    assert to_utf8(b"\xc3\xa4", f"text/html; charset={' ' * 65_000};") == b"\xc3\xa4"


def test_the_header_goes_before_the_page() -> None:
    assert read(b"<meta charset=cp1251>" + TEXT.encode(), "text/html; charset=utf-8").endswith(TEXT)


def test_what_a_page_says_after_its_beginning_does_not_count() -> None:
    body = b" " * 1024 + b"<meta charset=cp1251>" + TEXT.encode()

    assert read(body).endswith(TEXT)


@pytest.mark.parametrize("label", ["klingon", "utf-7", "../etc", "zlib", "rot13", "idna", "", ";", "utf_8_sig"])
def test_a_label_that_nobody_knows_counts_as_none(label: str) -> None:
    assert read(TEXT.encode(), f"text/html; charset={label}") == TEXT
    assert read(META % label.encode() + TEXT.encode()).endswith(TEXT)


def test_a_wrong_label_leaves_something_to_read() -> None:
    assert read(TEXT.encode("latin-1"), "text/html; charset=utf-8") == "<p>Gr\ufffd\ufffde"
    assert read(b"\xff\xfe\x00", "text/html; charset=big5")


def test_a_page_that_can_be_read_is_not_utf_16() -> None:
    assert read(b"<meta charset=utf-16>" + TEXT.encode()).endswith(TEXT)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("gb2312", "囍€"), ("big5", "繁體"), ("shift_jis", "テスト①"), ("euc-kr", "한국어똠"), ("euc-jp", "日本"),
        ("iso-2022-jp", "日本"), ("koi8-u", "Київ"), ("macintosh", "é"), ("tis-620", "ไทย"), ("iso-8859-9", "ğ"),
        ("iso_8859-15", "€"), ("866", "Я"), ("hebrew", "שלום"), ("sun_eu_greek", "Ω"), ("l6", "Đ"),
    ],
)  # fmt: skip
def test_labels_of_the_world(label: str, text: str) -> None:
    codec = _codec_of(label)
    assert codec

    assert read(text.encode(codec), f"text/html; charset={label.upper()}") == text


# Python's own names, which may change with it, stand for most of these.
ENCODING_STANDARD = """
utf_8: unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8;
cp866: 866 cp866 csibm866 ibm866;
iso8859_2: csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2;
iso8859_3: csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3;
iso8859_4: csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4;
iso8859_5: csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988;
iso8859_10: csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 iso_8859-10 l6 latin6;
iso8859_13: iso-8859-13 iso8859-13 iso885913 iso_8859-13;
iso8859_14: iso-8859-14 iso8859-14 iso885914 iso_8859-14;
iso8859_16: iso-8859-16 iso8859-16 iso885916 iso_8859-16;
iso8859_6: arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e
iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987;
iso8859_7: csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7
iso_8859-7:1987 sun_eu_greek;
iso8859_8: csiso88598e csiso88598i csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-8859-8-i iso-ir-138
iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 logical visual;
iso8859_15: csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9;
koi8_r: cskoi8r koi koi8 koi8-r koi8_r;
koi8_u: koi8-ru koi8-u;
mac_roman: csmacintosh mac macintosh x-mac-roman;
mac_cyrillic: x-mac-cyrillic x-mac-ukrainian;
cp874: dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874;
cp1250: cp1250 windows-1250 x-cp1250;
cp1251: cp1251 windows-1251 x-cp1251;
cp1253: cp1253 windows-1253 x-cp1253;
cp1255: cp1255 windows-1255 x-cp1255;
cp1256: cp1256 windows-1256 x-cp1256;
cp1257: cp1257 windows-1257 x-cp1257;
cp1258: cp1258 windows-1258 x-cp1258;
cp1252: ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591
iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252 x-user-defined;
cp1254: cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5
windows-1254 x-cp1254;
gb18030: chinese csgb2312 csiso58gb231280 gb18030 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk;
hz: hz-gb-2312;
big5hkscs: big5 big5-hkscs cn-big5 csbig5 x-x-big5;
euc_jp: cseucpkdfmtjapanese euc-jp x-euc-jp;
iso2022_jp: csiso2022jp iso-2022-jp;
cp932: csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis;
cp949: cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601
windows-949;
iso2022_kr: csiso2022kr iso-2022-kr;
utf_16_be: unicodefffe utf-16be;
utf_16_le: csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le
"""


@pytest.mark.parametrize("entry", ENCODING_STANDARD.split(";"))
def test_each_label_of_the_encoding_standard_means_its_codec(entry: str) -> None:
    codec, _, labels = entry.strip().partition(":")

    assert {label: _codec_of(label) for label in labels.split()} == dict.fromkeys(labels.split(), codec)
