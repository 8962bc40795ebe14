"""Patterns of keys: what matches, where a search for it begins, and that none takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from spyweb.limits import PATTERN
from spyweb.store.patterns import compile_pattern, next_prefix, translate

pieces = st.text(alphabet="ab*?[é\0", max_size=8).map(str.encode)
keys = st.text(alphabet="ab[é\0", max_size=8).map(str.encode)


def plainly(pattern: bytes, key: bytes) -> bool:
    """The same by the shortest way, which may take for ever."""
    expression = "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in pattern.decode())
    return re.fullmatch(expression, key.decode(), re.DOTALL) is not None


@given(pieces, keys)
def test_stars_and_question_marks_mean_what_they_mean(pattern: bytes, key: bytes) -> None:
    assert compile_pattern(pattern).matches(key) == plainly(pattern, key)


@given(pieces, keys)
def test_every_match_begins_with_the_prefix(pattern: bytes, key: bytes) -> None:
    compiled = compile_pattern(pattern)
    if compiled.matches(key):
        assert key.startswith(compiled.prefix)


@pytest.mark.parametrize(
    ("pattern", "prefix", "is_prefix"),
    [
        (b"*", b"", True),
        (b"a*", b"a", True),
        (b"a**", b"a", False),
        (b"a*b", b"a", False),
        (b"a?", b"a", False),
        (b"a", b"a", False),
    ],
)
def test_a_pattern_of_one_star_at_its_end_is_a_prefix(pattern: bytes, prefix: bytes, is_prefix: bool) -> None:
    compiled = compile_pattern(pattern)

    assert (compiled.prefix, compiled.is_prefix) == (prefix, is_prefix)


@pytest.mark.parametrize(
    ("key", "matches"), [(b"\xff", True), ("é".encode(), True), (b"\xc3\xa9\xff", False), (b"\n", True), (b"", False)]
)
def test_a_question_mark_is_a_character_or_a_byte_that_is_none(key: bytes, matches: bool) -> None:
    assert compile_pattern(b"?").matches(key) is matches


@pytest.mark.timeout(5)
def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not compile_pattern(b"*a" * 100 + b"*b").matches(b"a" * 512)
    assert not compile_pattern(b"*?a" * 100 + b"*b?").matches(b"a" * 512)
    assert "(?>" in translate("a*b*c")


@pytest.mark.parametrize(
    ("prefix", "beyond"), [(b"a", b"b"), (b"", None), (b"\xff\xff", None), (b"a\xff", b"b"), (b"a\0", b"a\x01")]
)
def test_the_keys_of_a_prefix_end_before_the_next(prefix: bytes, beyond: bytes | None) -> None:
    assert next_prefix(prefix) == beyond


def test_a_pattern_that_is_too_long_is_refused_before_it_is_compiled_or_kept() -> None:
    compile_pattern(b"*a" * (PATTERN // 2))
    kept = compile_pattern.cache_info().currsize

    with pytest.raises(StoreError, match=r"^a pattern has 2000 bytes, at most 1024 are allowed$"):
        compile_pattern(b"*a" * 1000)
    assert compile_pattern.cache_info().currsize == kept
