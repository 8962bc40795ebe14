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
        ("x-sjis", "①"), ("x-x-big5", "繁體"), ("iso88592", "ł"), ("iso-8859-8-i", "שלום"), ("windows-949", "똠"),
        ("x-cp1251", "Я"), ("ISO_8859-9:1989", "ğ"), ("x-mac-ukrainian", "Є"), ("us-ascii", "€"), ("hz-gb-2312", "中"),
    ],
)  # fmt: skip
def test_labels_of_the_world(label: str, text: str) -> None:
    codec = _codec_of(label)
    assert codec

    assert read(text.encode(codec), f"text/html; charset={label.upper()}") == text
