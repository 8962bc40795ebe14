from __future__ import annotations

import socket

import pytest

from spyweb.confined.frames import FrameReader, framed, receive_frame

BODIES = [b"a", b"", b"xyz" * 100, b"b"]


def as_bytes(body: memoryview) -> list[bytes]:
    return [bytes(body)]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_frames_are_read_however_they_arrive(step: int) -> None:
    sent = b"".join(map(framed, BODIES))
    reader = FrameReader(as_bytes)
    assert [body for at in range(0, len(sent), step) for body in reader.feed(sent[at : at + step])] == BODIES


def test_a_frame_over_the_limit_is_refused() -> None:
    assert FrameReader(as_bytes, 3).feed(framed(b"abc")) == [b"abc"]
    with pytest.raises(ValueError, match="a frame of 4 bytes"):
        FrameReader(as_bytes, 3).feed(framed(b"abcd"))


def test_one_is_waited_for_and_half_a_one_is_none() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(framed(b"whole") + framed(b"half")[:-1])
        assert receive_frame(ours) == b"whole"
        assert receive_frame(ours) == b""
