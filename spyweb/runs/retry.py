"""The delay before another attempt.  Pure: chance is handed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from spyweb.model import Backoff, Retry

_MOST_DOUBLINGS = 64  # beyond this every delay is over its maximum anyway


def retry_delay_ms(retry: Retry, attempt: int, random: Callable[[], float]) -> int:
    """Return the delay after the failed attempt (1, 2, …).

    With jitter it is drawn evenly from zero to the whole delay, so that jobs that failed together do not come back
    together.  `random` gives a number from 0 up to 1.
    """
    delay_ms = min(_full_delay_ms(retry, attempt), retry.max_delay_ms)
    return int(random() * (delay_ms + 1)) if retry.jitter else delay_ms


def _full_delay_ms(retry: Retry, attempt: int) -> int:
    match retry.backoff:
        case Backoff.CONSTANT:
            return retry.delay_ms
        case Backoff.LINEAR:
            return retry.delay_ms * attempt
        case Backoff.EXPONENTIAL:
            return retry.delay_ms << min(attempt - 1, _MOST_DOUBLINGS)
        case _:
            assert_never(retry.backoff)
