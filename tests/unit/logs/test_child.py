from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest
import structlog

from spyweb.logs.child import EVERY, MOST_READ, MOST_SHOWN, ChildOutput
from tests.fakes.clock import FakeClock

Events = Sequence[object]


@pytest.fixture
def events() -> Iterator[Events]:
    with structlog.testing.capture_logs() as events:
        yield events


def line(text: str) -> dict[str, object]:
    return {"event": "a worker process wrote to its error output", "text": text, "log_level": "error"}


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def output(clock: FakeClock) -> ChildOutput:
    return ChildOutput("a worker process", clock)


async def test_what_comes_in_pieces_is_one_line_with_its_label(
    output: ChildOutput, clock: FakeClock, events: Events
) -> None:
    os.write(output.writer, b"Traceback:\n")
    await clock.turn()
    os.write(output.writer, b"  boom \xff\n")
    assert events == []

    await clock.turn(EVERY)
    assert events == [line("Traceback:\n  boom \ufffd")]
    os.write(output.writer, b"more\n")
    await clock.turn()
    await clock.turn(EVERY)
    assert events[1:] == [line("more")]
    output.close()


async def test_a_flood_is_cut_and_read_no_faster_than_it_is_meant_to_be(
    output: ChildOutput, clock: FakeClock, events: Events
) -> None:
    os.write(output.writer, b"x" * MOST_READ)
    with pytest.raises(BlockingIOError):  # whoever writes more never waits
        os.write(output.writer, b"x")
    for _ in range(20):
        await clock.turn(EVERY / 100)
    assert events == []

    await clock.turn(EVERY)
    assert events == [line("x" * MOST_SHOWN + f" ... ({MOST_READ - MOST_SHOWN} bytes cut)")]
    output.close()


async def test_what_it_wrote_last_is_read_when_it_has_ended(
    output: ChildOutput, clock: FakeClock, events: Events
) -> None:
    os.write(output.writer, b"last words")
    output.close()
    output.close()
    await clock.turn(EVERY)

    assert events == [line("last words")]


async def test_an_end_without_a_word_is_no_line(output: ChildOutput, clock: FakeClock, events: Events) -> None:
    output.given()
    await clock.turn()
    await clock.turn(EVERY)
    output.close()

    assert events == []
