from __future__ import annotations

import os
import resource
from collections.abc import Callable

import pytest

from spyweb import descriptors

INFINITE = resource.RLIM_INFINITY


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], list[tuple[int, int]]]:
    def set_limits(soft: int, hard: int) -> list[tuple[int, int]]:
        now = [(soft, hard)]
        monkeypatch.setattr(resource, "getrlimit", lambda _: now[-1])
        monkeypatch.setattr(resource, "setrlimit", lambda _, limits: now.append(limits))
        return now

    return set_limits


Allow = Callable[[int, int], list[tuple[int, int]]]


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [
        (1_024, 4_096, 4_096),
        (1_024, 1 << 20, descriptors.MOST),
        (1_024, INFINITE, descriptors.MOST),
        (65_536, 1 << 20, 65_536),
        (INFINITE, INFINITE, INFINITE),
        (256, 256, 256),
    ],
)
def test_the_limit_is_raised_as_far_as_is_of_use_and_never_lowered(
    allow: Allow, soft: int, hard: int, then: int
) -> None:
    limits = allow(soft, hard)
    descriptors.raise_limit()
    assert limits[-1] == (then, hard)


def test_a_share_is_of_one_at_least(allow: Allow) -> None:
    allow(256, 256)
    assert descriptors.share(3, 4) == 21
    assert descriptors.share(3, 100) == 1


def test_what_is_left_is_what_is_allowed_less_what_is_open() -> None:
    assert 0 < descriptors.left() < descriptors.allowed()


def test_nothing_is_left_where_none_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "dup", refuse)
    assert descriptors.left() == 0
