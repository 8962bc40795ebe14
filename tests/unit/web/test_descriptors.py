from __future__ import annotations

import resource

import pytest

from spyweb.web import descriptors
from spyweb.web.connections import UNREAD_S

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "tcp", "private"), [(256, 64, 32), (1_024, 256, 128), (16_384, 1_024, 256), (INFINITE, 1_024, 256)]
)
def test_connections_leave_descriptors_for_jobs(
    monkeypatch: pytest.MonkeyPatch, soft: int, tcp: int, private: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, INFINITE))
    assert descriptors.tcp_limits().total == tcp
    assert descriptors.tcp_limits().of_one_address == tcp // 2
    assert descriptors.private_limits().total == private


def test_whoever_pages_through_an_answer_on_the_private_socket_has_an_hour() -> None:
    assert descriptors.tcp_limits().unread_s == UNREAD_S
    assert descriptors.private_limits().unread_s == 3_600
