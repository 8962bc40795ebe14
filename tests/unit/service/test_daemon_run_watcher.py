"""Watching one run while it goes, line by line."""

from __future__ import annotations

from spyweb.model import Ending, Outcome
from spyweb.service.daemon import LINE_BYTES, MOST_LOG_BYTES, RunWatcher
from spyweb.views.runs import LogLine, RunEnded
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import make_run

LINE = b"x" * (MOST_LOG_BYTES // 4 - LINE_BYTES)


async def text_of_next(watcher: RunWatcher) -> str:
    event = await watcher.next()
    assert isinstance(event, LogLine)
    return f"{event.level} {event.text[:60]}"


async def test_lines_come_in_their_order_and_then_the_end() -> None:
    watcher = RunWatcher(FakeClock())
    watcher.log("info", b"one")
    watcher.log("warn", b"two")
    watcher.ended(make_run(), Ending(outcome=Outcome.SUCCESS))

    assert [await text_of_next(watcher), await text_of_next(watcher)] == ["info one", "warn two"]
    assert isinstance(await watcher.next(), RunEnded)


async def test_who_reads_too_slowly_is_told_how_many_lines_are_missing() -> None:
    watcher = RunWatcher(FakeClock())
    for _ in range(7):
        watcher.log("info", LINE)
    for _ in range(4):
        assert (await text_of_next(watcher)).startswith("info xxx")
    watcher.log("info", b"again")
    missing = "warn {} lines came faster than they were read and are not shown"

    assert await text_of_next(watcher) == missing.format(3)
    assert await text_of_next(watcher) == "info again"

    for _ in range(6):
        watcher.log("info", LINE)
    watcher.ended(make_run(), Ending(outcome=Outcome.SUCCESS))
    for _ in range(4):
        await watcher.next()
    assert await text_of_next(watcher) == missing.format(2)
    assert isinstance(await watcher.next(), RunEnded)


async def test_empty_lines_take_room_as_well() -> None:
    watcher = RunWatcher(FakeClock())
    for _ in range(MOST_LOG_BYTES // LINE_BYTES + 7):
        watcher.log("info", b"")
    for _ in range(MOST_LOG_BYTES // LINE_BYTES):
        await text_of_next(watcher)
    watcher.log("info", b"again")
    assert await text_of_next(watcher) == "warn 7 lines came faster than they were read and are not shown"


async def test_nothing_is_kept_for_who_has_left() -> None:
    watcher = RunWatcher(FakeClock())
    watcher.is_watched = False
    watcher.log("info", b"one")
    watcher.ended(make_run(), Ending(outcome=Outcome.SUCCESS))

    assert isinstance(await watcher.next(), RunEnded)
