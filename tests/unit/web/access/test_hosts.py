"""Addresses of this machine."""

from __future__ import annotations

import pytest

from spyweb.web.access.hosts import _is_loopback_name, is_loopback, names_loopback


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "example.com", "10.0.0.1", "localhost.localdomain"])
def test_only_this_machine_is_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_a_host_that_is_too_long_is_refused_and_not_kept() -> None:
    kept = _is_loopback_name.cache_info().currsize
    assert not names_loopback("x" * 7_000)
    assert _is_loopback_name.cache_info().currsize == kept
