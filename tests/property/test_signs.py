"""Whatever breaks, runs and fails, and however often the daemon dies: in the end what is noted is what is so."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spyweb.alerts.signs import Conditions
from spyweb.incidents.policy import AlertPolicy
from spyweb.lua.endings import failed
from spyweb.model import Every
from tests.fakes.signs import BACKUP, SUCCESS, Watched, watched

MINUTE_MS = 60_000
LATE_MS, SILENT_MS, PERIOD_MS = 5 * MINUTE_MS, 20 * MINUTE_MS, 10 * MINUTE_MS
POLICY = AlertPolicy(after_failures=10_000, late_after_ms=LATE_MS, no_success_ms=SILENT_MS)
SETTLED_S = 40.0  # a sign must last before it is noted

Step = float | str
EVENTS = ["break", "mend", "succeed", "fail", "die", "die", "store", "well"]
steps = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.sampled_from([0.3, 4.0, 13.0, 40.0, 40.0, 400.0, 1_500.0])), max_size=14
).map(lambda pairs: [step for pair in pairs for step in pair])


class World:
    """A job that only people start, and what a daemon of it has to know."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.now = Conditions()
        self.started_ms = self.succeeded_ms = self.added_ms = 0
        self.daemon: Watched

    async def begin(self, before: Watched | None = None) -> None:
        self.daemon = await self.stack.enter_async_context(watched(POLICY, before, schedule=Every(period_ms=PERIOD_MS)))
        self.daemon.harness.timers.stop()
        self.daemon.conditions = self.now

    async def live(self, step: Step) -> None:
        match step:
            case float():
                await self.daemon.turn(step)
            case "break":
                self.now = Conditions(broken={BACKUP: "line 4"}, parts=self.now.parts)
            case "mend":
                self.now = Conditions(parts=self.now.parts)
            case "store":
                self.now = Conditions(broken=self.now.broken, parts={"store": "full"})
            case "well":
                self.now = Conditions(broken=self.now.broken)
            case "die":
                await self.stack.aclose()
                await self.begin(self.daemon)
            case _:
                await self.daemon.run(SUCCESS if step == "succeed" else failed("x"))
                self.started_ms = self.daemon.job.started_ms
                self.succeeded_ms = self.daemon.job.succeeded_ms if step == "succeed" else self.succeeded_ms
        self.daemon.conditions = self.now

    def expected(self) -> tuple[set[str], set[str]]:
        """Return what must be noted, and what may be: it has just become so."""
        clock_ms = self.daemon.harness.clock.now_ms()
        must = {"job:backup broken"} if self.now.broken else set()
        must |= {"daemon:store refusing"} if self.now.parts else set()
        may = set()
        since_ms = max(self.started_ms, self.added_ms)
        first_due_ms = since_ms + PERIOD_MS - (since_ms - self.daemon.job.cursor.due_ms) % PERIOD_MS
        silent_ms = max(self.succeeded_ms, self.added_ms) + SILENT_MS
        for sign, moment_ms in (("late", first_due_ms + LATE_MS), ("silent", silent_ms)):
            if moment_ms <= clock_ms - SETTLED_S * 1000:
                must.add(f"job:backup {sign}")
            elif moment_ms <= clock_ms:
                may.add(f"job:backup {sign}")
        return must, may


async def play(story: list[Step]) -> None:
    async with AsyncExitStack() as stack:
        world = World(stack)
        await world.begin()
        world.added_ms = world.daemon.job.cursor.active_since_ms or 0
        world.started_ms = world.daemon.job.started_ms
        for step in story:
            await world.live(step)
        await world.daemon.turn(SETTLED_S)
        noted, (must, may) = set(await world.daemon.signs()), world.expected()
        assert must <= noted <= must | may
        still_open = {incident.subject for incident in await world.daemon.incidents()}
        assert still_open == {sign.partition(" ")[0] for sign in noted}


@settings(suppress_health_check=list(HealthCheck))
@given(steps)
def test_what_is_noted_is_what_is_so(story: list[Step]) -> None:
    asyncio.run(play(story))
