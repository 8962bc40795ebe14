from __future__ import annotations

import resource
import ssl
from pathlib import Path

import pytest
import trustme

from spyweb.ops.network.client import (
    MOST_CONNECTIONS,
    joined_headers,
    machine_trust,
    most_connections,
)


def test_header_names_are_lower_case_and_repeats_are_joined_in_order() -> None:
    raw = [(b"X-A", b"1"), (b"Other", b"\xff"), (b"x-a", b"2"), (b"X-a", b"")]
    assert joined_headers(raw) == {b"x-a": b"1, 2, ", b"other": b"\xff"}


@pytest.mark.parametrize(
    ("soft", "most"),
    [(1024, 512), (1 << 20, MOST_CONNECTIONS), (resource.RLIM_INFINITY, MOST_CONNECTIONS)],
)
def test_connections_leave_room_for_other_files(soft: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections() == most


def test_whom_this_machine_trusts_is_trusted_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    machine_trust.cache_clear()
    try:
        context = machine_trust()
    finally:
        machine_trust.cache_clear()
    assert len(context.get_ca_certs()) == 1
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_no_server_chooses_how_long_a_handshake_takes() -> None:
    usual = [cipher for cipher in ssl.create_default_context().get_ciphers() if cipher["kea"] != "kx-dhe"]
    assert [cipher["name"] for cipher in machine_trust().get_ciphers()] == [cipher["name"] for cipher in usual]
