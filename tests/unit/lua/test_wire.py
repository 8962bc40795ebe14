from __future__ import annotations

import pytest

from spyweb.confined.frames import MAX_FRAME, FrameReader
from spyweb.lua import wire
from spyweb.lua.wire import Ended, Ext, Foreign, OpCall, Pong, ResumeRun, RunEnd, ScriptLog
from spyweb.model import NULL
from tests.fakes.worker import raw_frame

MESSAGES: list[wire.FromWorker] = [
    OpCall(1, 2, "name", [b"\xff", None, 2.5, -7, True]),
    RunEnd(1, Ended.ERROR, b"why", b"", 3, None, False),
    Pong(1, 5, [(2, 3)]),
]


def reader(most: int = MAX_FRAME) -> FrameReader[wire.FromWorker]:
    return FrameReader(wire.decode_from_worker, most)


def test_a_frame_comes_back_whole_though_it_arrives_byte_by_byte() -> None:
    slow = reader()
    assert [message for byte in wire.frame(MESSAGES) for message in slow.feed(bytes([byte]))] == MESSAGES


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (wire.SMALL_FRAME.to_bytes(4, "little"), f"a frame of {wire.SMALL_FRAME} bytes"),
        (b"\x01\x00\x00\x00\xc1", "malformed"),
    ],
)
def test_a_frame_over_the_bound_of_its_reader_or_no_msgpack_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        reader(wire.SMALL_FRAME - 1).feed(data)


@pytest.mark.parametrize("count", [1, 14, 15, 70_000])
@pytest.mark.parametrize("size", [0, wire.BULK, wire.BULK + 1])
def test_a_message_in_pieces_is_a_frame(count: int, size: int) -> None:
    message = ResumeRun(1, 2, 0, [b"x" * size, *[None] * count, 2.5, b"y" * size])

    data = b"".join(wire.pieces(message))
    assert FrameReader(wire.decode_to_worker).feed(data) == [message]
    assert int.from_bytes(data[:4], "little") == len(data) - 4


def test_a_big_string_is_a_piece_itself() -> None:
    big = b"x" * (wire.BULK + 1)

    assert [piece is big for piece in wire.pieces(ResumeRun(1, 2, 0, [big, b"small"]))] == [False, True, False]


def test_what_only_lua_has_is_a_value_of_its_own_made_once_however_often_it_comes() -> None:
    first, second = wire.unpack(b"\x92" + b"\xc7\x08\x01function" * 2)
    assert first is second
    assert first == Foreign(Ext.FOREIGN, "function")


def test_null_is_one_and_an_empty_array_is_an_empty_list() -> None:
    first, second = wire.unpack(wire.pack([NULL, NULL]))
    assert first is second is NULL
    assert wire.unpack(b"\x91\xc7\x05\x05table") == [[]]


def test_a_batch_leaves_in_frames_of_a_bounded_size_and_in_order() -> None:
    messages = [ScriptLog(number, "info", b"x" * 16_000) for number in range(100)]

    frames = wire.small_frames(messages)

    assert max(map(len, frames)) <= wire.SMALL_FRAME
    small = reader(wire.SMALL_FRAME)
    assert [message for frame in frames for message in small.feed(frame)] == messages


@pytest.mark.parametrize("message", [[3, 1], [3, 1, 42, b"", b"", 1, None, False], [5, 1, -1, []], [99], [], 5, {}])
def test_a_message_is_checked_as_a_whole_before_it_is_given(message: object) -> None:
    with pytest.raises(ValueError, match=r"Expected|Invalid|missing|length|of a kind"):
        reader().feed(raw_frame(message))
