"""Tokens and cookies."""

from __future__ import annotations

import re

import pytest

from spyweb.web.access.tokens import (
    CHECKSUM,
    find_handle,
    hash_secret,
    is_same,
    make_cookie,
    make_token,
)


def test_a_token_is_found_by_its_handle_and_has_256_bits_of_chance() -> None:
    token = make_token()

    assert re.fullmatch(r"spyweb_[0-9A-Za-z]{57}", token)
    assert find_handle(token) == token[7:15]
    assert 62 ** len(token[15:-CHECKSUM]) > 2**256
    assert len({make_token() for _ in range(100)}) == 100


@pytest.mark.parametrize("where", [7, 14, 15, 57, 58, 63])
def test_a_mistyped_token_has_no_handle(where: int) -> None:
    token = make_token()
    other = "a" if token[where] != "a" else "b"

    assert find_handle(token[:where] + other + token[where + 1 :]) is None


@pytest.mark.parametrize("text", ["", "spyweb_", "x" * 64, "spyweb_" + "0" * 56 + "\n", "spyweb_" + "é" * 57, "\udcff"])
def test_what_is_no_token_has_no_handle(text: str) -> None:
    assert find_handle(text) is None


def test_a_hash_tells_nothing_and_may_cover_a_key() -> None:
    cookie = make_cookie()

    assert len(cookie) == 43
    assert len(hash_secret(cookie)) == 32
    assert len({hash_secret(cookie), hash_secret(cookie, "one"), hash_secret(cookie, "two"), hash_secret("x")}) == 4
    assert hash_secret("\udcff", "\udcfe")


def test_texts_are_compared_whatever_they_hold() -> None:
    assert is_same("clé", "clé")
    assert not is_same("clé", "cle")
    assert not is_same("\udcff", "")
