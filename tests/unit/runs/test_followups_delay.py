from __future__ import annotations

import random

import pytest

from spyweb.model import Backoff, Retry
from spyweb.runs.followups import retry_delay_ms


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff.CONSTANT, [100, 100, 100, 100]),
        (Backoff.LINEAR, [100, 200, 300, 400]),
        (Backoff.EXPONENTIAL, [100, 200, 400, 800]),
    ],
)
def test_each_backoff_grows_in_its_own_way(backoff: Backoff, delays: list[int]) -> None:
    retry = Retry(delay_ms=100, backoff=backoff, jitter=False)

    assert [retry_delay_ms(retry, attempt, random.random) for attempt in (1, 2, 3, 4)] == delays


def test_no_delay_is_longer_than_the_maximum() -> None:
    retry = Retry(delay_ms=100, max_delay_ms=250, jitter=False)

    assert [retry_delay_ms(retry, attempt, random.random) for attempt in (1, 2, 3, 1_000_000)] == [100, 200, 250, 250]


def test_full_jitter_draws_evenly_from_nothing_to_the_whole_delay() -> None:
    retry = Retry(delay_ms=1_000)

    assert retry_delay_ms(retry, 1, lambda: 0.0) == 0
    assert retry_delay_ms(retry, 1, lambda: 0.5) == 500
    assert retry_delay_ms(retry, 1, lambda: 0.9999999) == 1_000


def test_the_same_chance_gives_the_same_delay() -> None:
    retry = Retry(delay_ms=1_000)

    assert retry_delay_ms(retry, 3, random.Random(7).random) == retry_delay_ms(retry, 3, random.Random(7).random)
