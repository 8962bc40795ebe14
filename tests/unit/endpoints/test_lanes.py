"""Which worker a request goes to."""

from __future__ import annotations

from spyweb.endpoints.lanes import LATE_S, Lanes
from spyweb.model import RunId
from spyweb.specs.server_file import ServerFile, code_of_server
from tests.fakes.clock import FakeClock

CODES = [code_of_server(ServerFile(b""), 1, lane) for lane in range(3)]
FIRST, SECOND, THIRD = CODES


async def test_the_first_has_all_while_it_keeps_up() -> None:
    clock = FakeClock()
    lanes = Lanes(clock)
    for number in range(100):
        assert lanes.enter(CODES, RunId(number)) == FIRST
        if number >= 32:
            lanes.leave(FIRST.job, RunId(number - 32))
        await clock.turn(LATE_S / 40)


async def test_the_next_helps_while_those_before_it_have_an_old_request() -> None:
    clock = FakeClock()
    lanes = Lanes(clock)
    chosen = []
    for number in range(3):
        chosen.append(lanes.enter(CODES, RunId(number)))
        await clock.turn(LATE_S)
    assert chosen == [FIRST, SECOND, THIRD]
    lanes.leave(SECOND.job, RunId(1))
    assert lanes.enter(CODES, RunId(3)) == SECOND


async def test_where_none_keeps_up_it_goes_to_whoever_has_the_fewest() -> None:
    clock = FakeClock()
    lanes = Lanes(clock)
    for number, codes in enumerate([[FIRST], [FIRST], [SECOND], [THIRD], [THIRD]]):
        lanes.enter(codes, RunId(number))
    await clock.turn(LATE_S)
    assert lanes.enter(CODES, RunId(9)) == SECOND


async def test_what_a_worker_had_of_an_older_version_counts() -> None:
    clock = FakeClock()
    lanes = Lanes(clock)
    lanes.enter(CODES, RunId(1))
    await clock.turn(LATE_S)
    newer = [code_of_server(ServerFile(b"x"), 2, lane) for lane in range(3)]
    assert lanes.enter(newer, RunId(2)) == newer[1]
