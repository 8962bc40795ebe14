"""Measure how the cost of reading grows with size: as a ratio, because machines differ in speed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LINEAR = 8  # times the cost at four times the size; of a square it would be 16


def growth(read: Callable[[T], object], made_of: Callable[[int], T], n: int) -> float:
    """Return how many times the CPU time of size n it takes to read what has size 4n.

    Measured again, at most twice, where it is too much: of a square it is so each time.
    """
    for _ in range(3):
        times = _cost(read, made_of(4 * n)) / _cost(read, made_of(n))
        if times < LINEAR:
            break
    return times


def _cost(read: Callable[[T], object], given: T) -> float:
    """Return the least of a few measurements, since whatever else runs here can only add to one."""
    gc.collect()
    costs = []
    for _ in range(3):
        began = time.thread_time()
        read(given)
        costs.append(time.thread_time() - began)
    return max(min(costs), 1e-4)
