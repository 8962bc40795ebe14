"""Which ops are timed, and that their answers are what is timed."""

from __future__ import annotations

from spyweb.lua.op_times import OpTimes
from spyweb.lua.wire import Form
from tests.fakes.channel import done, open_channel, pending
from tests.fakes.clock import settle


def test_a_name_that_is_no_ops_is_not_counted() -> None:
    times = OpTimes(["echo"])
    times.note("echo", 0.1)
    times.note("made up", 0.1)
    assert {name: each.count for name, each in times.histograms.items()} == {"echo": 1}


async def test_an_op_is_timed_once_whether_it_is_answered_refused_or_waited_for() -> None:
    times = OpTimes(["echo", "late", "bad"])
    async with open_channel(times) as harness:
        future = pending()
        harness.host.ops |= {"echo": lambda values: done(*values), "late": lambda _: future}
        harness.ask("echo", 1)
        harness.ask("bad")
        harness.ask("late")
        assert {name: each.count for name, each in times.histograms.items()} == {"echo": 1, "bad": 1}
        future.set_result([2])
        await settle()
        assert times.histograms["late"].count == 1
        assert harness.answers[-1] == [Form.PLAIN, 2]
