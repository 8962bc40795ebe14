"""The bounds on what others choose, and the words of a refusal."""

from __future__ import annotations

import pytest

from spyweb.limits import CHUNKS, too_large, too_many_chunks


def test_a_refusal_names_the_thing_its_size_and_the_bound() -> None:
    assert too_large("a pattern", 2000, 1024) == "a pattern has 2000 bytes, at most 1024 are allowed"
    assert too_large("a request", 300, 256, "header lines") == "a request has 300 header lines, at most 256 are allowed"


@pytest.mark.parametrize(
    ("chunks", "size", "too_many"),
    [
        (CHUNKS, CHUNKS, False),
        (CHUNKS + CHUNKS // 10, CHUNKS, True),
        (74_000, 1_024_000, False),
        (74_001, 1_024_000, True),
    ],
)
def test_chunks_may_be_small_as_long_as_they_are_few(chunks: int, size: int, too_many: bool) -> None:
    assert too_many_chunks(chunks, size) is too_many
