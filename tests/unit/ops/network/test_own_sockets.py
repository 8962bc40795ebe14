"""Which addresses are the daemon's own listeners, and which connections come from its own client."""

from __future__ import annotations

import errno
import socket

import pytest

from spyweb.ops.network.address_check import OwnSockets


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", True),
        ("::1", True),
        ("::", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
    ],
)
def test_every_address_of_this_machine_leads_to_a_listener(address: str, is_own: bool) -> None:
    own = OwnSockets()
    with own.listening([7979]), own.listening([7979, 8080]):
        assert own.is_listener(address, 7979) is is_own
        assert not own.is_listener(address, 80)
    assert not own.is_listener(address, 7979)


def test_an_address_that_can_not_be_tried_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    own = OwnSockets()
    monkeypatch.setattr(socket, "socket", refuse)
    with own.listening([7979]):
        assert own.is_listener("192.0.2.1", 7979)


def test_the_client_s_own_connection_is_recognised_until_it_is_closed() -> None:
    own = OwnSockets()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as other:
        opened = socket.socket()
        own.opened.add(opened)
        opened.connect(server.getsockname())
        other.connect(server.getsockname())
        for connected, is_own in ((opened, True), (other, False)):
            accepted, peer = server.accept()
            accepted.close()
            assert peer == connected.getsockname()
            assert own.has_opened(peer) is is_own
            assert own.has_opened((f"::ffff:{peer[0]}", peer[1], 0, 0)) is is_own
        peer = opened.getsockname()
        opened.close()
        assert not own.has_opened(peer)
    assert not own.has_opened("")
    assert not own.has_opened(None)
