from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from spyweb.lua import channel
from spyweb.lua.wire import BranchBegan, BranchEnded, BranchOpCall, EndBranch, Form, ResumeRun, Why
from tests.fakes.channel import ChannelHarness, done, open_channel, pending
from tests.fakes.clock import settle


@pytest.fixture
async def harness() -> AsyncIterator[ChannelHarness]:
    async with open_channel() as harness:
        yield harness


def ask(harness: ChannelHarness, branch: int, number: int, name: str = "get") -> None:
    slot = harness.channel.branches.slot_for(branch, number)
    if slot is not None:
        slot.ask(BranchOpCall(1, number, name, [], branch))


async def test_the_run_and_its_branches_have_an_op_each_under_way(harness: ChannelHarness) -> None:
    futures = [pending() for _ in range(3)]
    waiting = iter(futures)
    harness.host.ops["get"] = lambda _: next(waiting)
    harness.ask("get", number=1)
    ask(harness, 1, 2)
    ask(harness, 2, 3)

    for future in reversed(futures):
        future.set_result([b"x"])
        await settle()

    assert [sent.number for sent in harness.connection.sent if isinstance(sent, ResumeRun)] == [3, 2, 1]
    assert harness.host.lineages == [(), (1,), (2,)]


async def test_a_branch_in_another_is_known_by_both(harness: ChannelHarness) -> None:
    harness.host.ops["get"] = lambda _: done()
    harness.channel.branches.began(BranchBegan(1, 7, 4, 0))
    harness.channel.branches.began(BranchBegan(1, 9, 7, 0))
    for number, branch in enumerate((4, 7, 9), 1):
        ask(harness, branch, number)

    assert harness.host.lineages == [(4,), (7, 4), (9, 7, 4)]


async def test_the_end_of_a_branch_cancels_its_op_alone_and_frees_what_it_has(harness: ChannelHarness) -> None:
    mine, other = pending(), pending()
    waiting = iter((mine, other))
    harness.host.ops["get"] = lambda _: next(waiting)
    ask(harness, 1, 1)
    ask(harness, 2, 2)

    harness.channel.branches.ended(BranchEnded(1, 1, 1))

    assert (mine.cancelled(), other.cancelled()) == (True, False)
    assert harness.host.ended == [(1,)]


@pytest.mark.parametrize("has_asked_before", [False, True])
async def test_an_op_that_comes_after_the_end_of_its_branch_is_dropped(
    harness: ChannelHarness, has_asked_before: bool
) -> None:
    """It is big, and took the other socket."""
    harness.host.ops["get"] = lambda _: done()
    if has_asked_before:
        ask(harness, 1, 1)
    harness.channel.branches.ended(BranchEnded(1, 1, 2))

    ask(harness, 1, 2)
    ask(harness, 2, 3)

    assert harness.host.lineages == ([(1,), (2,)] if has_asked_before else [(2,)])


async def test_the_worker_is_told_when_the_time_of_a_branch_is_up(harness: ChannelHarness) -> None:
    harness.channel.branches.began(BranchBegan(1, 1, 0, 1500))
    harness.channel.branches.began(BranchBegan(1, 2, 0, 1000))
    harness.channel.branches.ended(BranchEnded(1, 2, 0))

    await harness.clock.turn(1.4)
    assert not harness.connection.sent

    await harness.clock.turn(0.2)
    assert harness.connection.sent == [EndBranch(1, 1)]


async def test_a_cancel_ends_the_ops_and_timeouts_of_all_branches(harness: ChannelHarness) -> None:
    op = pending()
    harness.host.ops["get"] = lambda _: op
    harness.channel.branches.began(BranchBegan(1, 1, 0, 1000))
    ask(harness, 1, 1)

    harness.channel.cancel(Why.CANCELLED)
    await harness.clock.turn(1.5)

    assert op.cancelled()
    assert not any(isinstance(sent, EndBranch) for sent in harness.connection.sent)


async def test_a_run_that_ends_frees_what_its_branches_have(harness: ChannelHarness) -> None:
    harness.host.ops["get"] = lambda _: pending()
    ask(harness, 1, 1)
    ask(harness, 2, 2)

    harness.channel.close()
    harness.channel.close()

    assert harness.host.ended == [(1,), (2,)]


async def test_an_error_is_raised_in_the_branch_that_has_asked(harness: ChannelHarness) -> None:
    ask(harness, 1, 5, "no such op")

    assert [(sent.number, sent.form) for sent in harness.connection.sent if isinstance(sent, ResumeRun)] == [
        (5, Form.RAISE)
    ]


async def test_there_is_a_limit_to_what_a_worker_may_make_up(
    harness: ChannelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MOST_BRANCHES", 3)
    known = harness.channel.branches
    for branch in (1, 2, 3):
        known.slot_for(branch, branch)

    with pytest.raises(ValueError, match="over 3 branches of one run"):
        known.slot_for(4, 4)
    for number in (11, 12, 13):
        known.ended(BranchEnded(1, number, number))
    with pytest.raises(ValueError, match="over 3 branches of one run"):
        known.ended(BranchEnded(1, 14, 14))
