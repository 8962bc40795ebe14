from __future__ import annotations

import math

import pytest

from spyweb.ops.rules.values import Unstorable, expiry_of, remaining
from spyweb.store.model.entries import Entry

NOW = 1_000_000


@pytest.mark.parametrize(
    ("ttl", "expires_ms"),
    [
        (None, None),
        (0, NOW),
        (-5, NOW),
        (60, NOW + 60_000),
        (0.25, NOW + 250),
        (0.0001, NOW + 1),
        (math.inf, None),
        (-math.inf, NOW),
        (1e300, None),
    ],
)
def test_a_ttl_is_seconds_from_now_and_over_at_once_at_or_below_zero(ttl: float | None, expires_ms: int | None) -> None:
    assert expiry_of(ttl, NOW) == expires_ms


def test_a_ttl_must_be_a_number() -> None:
    with pytest.raises(Unstorable, match="the ttl is NaN"):
        expiry_of(math.nan, NOW)


@pytest.mark.parametrize(
    ("expires_ms", "seconds"),
    [(None, -1), (NOW + 1, 1), (NOW + 999, 1), (NOW + 1000, 1), (NOW + 1001, 2), (NOW + 60_000, 60), (NOW, 1)],
)
def test_what_is_left_is_rounded_up_so_that_a_live_key_never_has_none(expires_ms: int | None, seconds: int) -> None:
    entry = Entry(value=1, version=1, created_ms=0, updated_ms=0, expires_ms=expires_ms)
    assert remaining(entry, NOW) == seconds


def test_what_is_not_there_has_minus_two() -> None:
    assert remaining(None, NOW) == -2
