"""The bounds on what others choose, and the words of a refusal."""

from __future__ import annotations

from spyweb.limits import too_large


def test_a_refusal_names_the_thing_its_size_and_the_bound() -> None:
    assert too_large("a pattern", 2000, 1024) == "a pattern has 2000 bytes, at most 1024 are allowed"
    assert too_large("a request", 300, 256, "header lines") == "a request has 300 header lines, at most 256 are allowed"
