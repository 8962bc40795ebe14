from __future__ import annotations

import os
import resource
from collections.abc import Callable

import pytest

from spyweb.web import descriptors
from spyweb.web.connections import UNREAD_S

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


@pytest.mark.parametrize(
    ("soft", "tcp", "private"), [(256, 64, 32), (1_024, 256, 128), (16_384, 1_024, 256), (INFINITE, 1_024, 256)]
)
def test_connections_leave_descriptors_for_jobs(allow: Allow, soft: int, tcp: int, private: int) -> None:
    allow(soft, INFINITE)
    assert descriptors.tcp_limits().total == tcp
    assert descriptors.tcp_limits().of_one_address == tcp // 2
    assert descriptors.private_limits().total == private


def test_whoever_pages_through_an_answer_on_the_private_socket_has_an_hour() -> None:
    assert descriptors.tcp_limits().unread_s == UNREAD_S
    assert descriptors.private_limits().unread_s == 3_600


def test_what_is_left_is_what_is_allowed_less_what_is_open() -> None:
    assert 0 < descriptors.left() < descriptors.allowed()


def test_nothing_is_left_where_none_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "dup", refuse)
    assert descriptors.left() == 0
