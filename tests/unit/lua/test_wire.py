from __future__ import annotations

import msgspec
import pytest

from spyweb.confined.frames import FrameReader
from spyweb.lua import wire
from spyweb.lua.wire import Ext, Foreign, ResumeRun, ScriptLog
from spyweb.model import NULL


def test_a_message_in_pieces_is_a_frame() -> None:
    message = ResumeRun(1, 2, 0, [b"x" * (wire.BULK + 1), 2.5])

    assert b"".join(wire.pieces(message)) == wire.frame([message])


@pytest.mark.parametrize("value", ["text", [1], {"a": 1}, Foreign(Ext.FOREIGN, "thread")])
def test_a_worker_takes_nothing_but_scalars_for_lua(value: object) -> None:
    frame = wire.frame([ResumeRun(1, 1, 0, [value])])  # type: ignore[list-item]

    with pytest.raises(msgspec.ValidationError):
        FrameReader(wire.decode_to_worker).feed(frame)


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
    small = FrameReader(wire.decode_from_worker, wire.SMALL_FRAME)
    assert [message for frame in frames for message in small.feed(frame)] == messages
