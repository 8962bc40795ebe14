"""Watching one run."""

from __future__ import annotations

from spyweb.daemon.run_watch import MOST_BYTES, Watching
from spyweb.model import Ending, Outcome
from spyweb.views.jobs import LogLine, RunEnded
from tests.fakes.clock import FakeClock
from tests.fakes.desk import make_run

LINE = b"x" * (MOST_BYTES // 4)


async def text_of_next(watching: Watching) -> str:
    event = await watching.next()
    assert isinstance(event, LogLine)
    return f"{event.level} {event.text[:60]}"


async def test_lines_come_in_their_order_and_then_the_end() -> None:
    watching = Watching(FakeClock())
    watching.log("info", b"one")
    watching.log("warn", b"two")
    watching.ended(make_run(), Ending(outcome=Outcome.SUCCESS))

    assert [await text_of_next(watching), await text_of_next(watching)] == ["info one", "warn two"]
    assert isinstance(await watching.next(), RunEnded)


async def test_who_reads_too_slowly_is_told_how_many_lines_are_missing() -> None:
    watching = Watching(FakeClock())
    for _ in range(7):
        watching.log("info", LINE)
    for _ in range(4):
        assert (await text_of_next(watching)).startswith("info xxx")
    watching.log("info", b"again")
    missing = "warn {} lines came faster than they were read and are not shown"

    assert await text_of_next(watching) == missing.format(3)
    assert await text_of_next(watching) == "info again"

    for _ in range(6):
        watching.log("info", LINE)
    watching.ended(make_run(), Ending(outcome=Outcome.SUCCESS))
    for _ in range(4):
        await watching.next()
    assert await text_of_next(watching) == missing.format(2)
    assert isinstance(await watching.next(), RunEnded)


async def test_nothing_is_kept_for_who_has_left() -> None:
    watching = Watching(FakeClock())
    watching.is_watched = False
    watching.log("info", b"one")
    watching.ended(make_run(), Ending(outcome=Outcome.SUCCESS))

    assert isinstance(await watching.next(), RunEnded)
