"""How a person reads what is to come and what was."""

from __future__ import annotations

import pytest

from spyweb.cli.jobs import rounded, until


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (99, "0s"),
        (1_234, "1.2s"),
        (12_345, "12s"),
        (599_999, "9m59s"),
        (600_001, "10m"),
        (5_400_000, "1h30m"),
        (2 * 86_400_000 + 90_000, "2d"),
        (400 * 86_400_000, "400d"),
    ],
)
def test_a_span_is_told_as_closely_as_anybody_cares(ms: int, text: str) -> None:
    assert rounded(ms) == text


def test_what_is_late_is_due_now() -> None:
    assert until(-10) == until(0) == "now"
    assert until(61_000) == "in 1m1s"
