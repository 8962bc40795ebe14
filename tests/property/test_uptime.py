"""Uptime against a brute force: lives of jobs with silence, pauses, maintenance, and ends that come late or twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from spyweb.model import JobId, Outcome, RunId
from spyweb.schedules.cron import cron_after
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once, Recurring
from spyweb.store.model.runs import Change, End
from spyweb.store.model.uptime import SPANS, UptimeSpan, bucket_of
from tests.fakes.changes import make_cursor, start_run
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.uptime import Result, record

JOB, OTHER = JobId("site"), JobId("other")
BERLIN = "Europe/Berlin"
BEGIN_MS = 1_790_000_000_000  # 2026-09-21: winter time begins within some lives
STEPS_MS = (1, 700, 30_000, MINUTE_MS, MINUTE_MS, MINUTE_MS, 7 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS, DAY_MS, 9 * DAY_MS)


class Fact(NamedTuple):
    """What holds from a moment until the next one, or until it is stale."""

    at_ms: int
    up: bool | None
    stale_ms: int = 0


class Life:
    """A job's life, as it is told to a store, and as it was."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = FakeClock(BEGIN_MS + self.random.randrange(2 * DAY_MS))
        self.store = MemoryStore(self.clock)
        self.facts: list[Fact] = []
        self.counted: list[tuple[int, bool, int | None]] = []
        self.ended: list[End] = []
        self.rules: list[tuple[int, MaintenanceRule]] = []  # each with since when it has been there
        self.windows: list[tuple[int, int]] = []  # of rules that were withdrawn, up to then

    async def live(self) -> None:
        deeds = [self.end] * 12 + [self.pause, self.repeat, self.come_late, self.maintain, self.withdraw]
        deeds += [self.tidy, self.count_some, self.count_some]
        for _ in range(self.random.randrange(2, 40)):
            self.clock.advance(self.random.choice(STEPS_MS) * self.random.choice((1, 1, 1, 2, 0)) / 1000)
            await self.random.choice(deeds)()

    def result_at(self, at_ms: int) -> Result:
        lasts_ms = self.random.choice((500, 2 * MINUTE_MS, 3 * HOUR_MS, 40 * DAY_MS))
        latency = self.random.choice((None, bucket_of(self.random.expovariate(1 / 300))))
        up = self.random.random() < 0.7
        return Result(JOB, at_ms, up, at_ms + lasts_ms, latency if up else None)

    async def end(self) -> None:
        """End one run or several in one commit, with one that says nothing about its job, and another job's."""
        now_ms = self.clock.now_ms()
        results = [self.result_at(now_ms) for _ in range(self.random.choice((1, 1, 1, 1, 3)))]
        await self.record([*results, Result(JOB, now_ms, up=False, stale_ms=None), results[0]._replace(job=OTHER)])
        self.facts += [Fact(now_ms, each.up, each.stale_ms or 0) for each in results]

    async def record(self, results: list[Result]) -> None:
        self.ended = await record(self.store, *results)
        own = [each for each in results if each.job == JOB and each.stale_ms is not None]
        self.counted += [(each.at_ms, each.up, each.latency) for each in own]

    async def repeat(self) -> None:
        """Record ends again, and those of runs that never were, with that of another job."""
        strangers = [replace(each, run=RunId(0)) for each in self.ended]
        run = await start_run(self.store, OTHER, due_ms=None)
        other = End(run=run, ended_ms=self.clock.now_ms(), outcome=Outcome.SUCCESS)
        await self.store.runs.record(Change(end=[*self.ended, *strangers, other]))

    async def come_late(self) -> None:
        """Record an end from before the newest result."""
        if any(fact.up is not None for fact in self.facts):
            at_ms = max(fact.at_ms for fact in self.facts) - self.random.randrange(1, 10 * MINUTE_MS)
            await self.record([self.result_at(at_ms)])

    async def pause(self) -> None:
        now_ms = self.clock.now_ms()
        await self.store.runs.record(Change(cursors=[replace(make_cursor(JOB), idle_since_ms=now_ms)]))
        self.facts.append(Fact(now_ms, None))

    async def maintain(self) -> None:
        """Plan maintenance: once, or again and again, also where the clocks change; some of it is of other jobs."""
        begin_ms = self.clock.now_ms() + self.random.choice((0, 1, HOUR_MS, -HOUR_MS))
        once = Once(begin_ms, begin_ms + self.random.choice((1, 40 * MINUTE_MS, 3 * DAY_MS)))
        cron = self.random.choice(("30 2 * * *", "0 */6 * * *", "15 * * * *"))
        window = self.random.choice((once, Recurring(cron, BERLIN, self.random.choice((MINUTE_MS, 90 * MINUTE_MS)))))
        jobs = self.random.choice(((), ("si*",), (JOB, OTHER), (OTHER,)))
        self.rules.append((self.clock.now_ms(), MaintenanceRule(window, jobs)))
        await self.excuse()

    async def withdraw(self) -> None:
        """End maintenance early: the past stays as it was."""
        self.windows = [(start_ms, min(end_ms, self.clock.now_ms())) for start_ms, end_ms in self.maintenance()]
        self.rules = []
        await self.excuse()

    async def excuse(self) -> None:
        await self.store.uptime.count(dict.fromkeys([JOB, OTHER], self.clock.now_ms()), self.store.uptime.excused)
        self.store.uptime.excused = MaintenanceCalendar([rule for _, rule in self.rules]).excused

    async def tidy(self) -> None:
        await self.store.uptime.prune(self.clock.now_ms())

    async def count_some(self) -> None:
        """Count the first samples that wait, and not those after them."""
        found = self.store._sqlite.execute("SELECT id FROM sample ORDER BY id").fetchall()
        some = [number for (number,) in found[: self.random.randrange(1, 5)]]
        if some:
            await self.store.uptime.count({}, self.store.uptime.excused, some)

    def maintenance(self) -> list[tuple[int, int]]:
        found = []
        for since_ms, rule in self.rules:
            windows = [tuple(rule.window)] if isinstance(rule.window, Once) else list(self.recurring(rule.window))
            found += [(max(start_ms, since_ms), end_ms) for start_ms, end_ms in windows if rule.covers(JOB)]
        return self.windows + [(start_ms, end_ms) for start_ms, end_ms in found if start_ms < end_ms]

    def recurring(self, window: Recurring) -> Iterator[tuple[int, int]]:
        at_ms = cron_after(window.cron, window.timezone, BEGIN_MS - DAY_MS)
        while at_ms is not None and at_ms <= self.clock.now_ms():
            yield at_ms, at_ms + window.duration_ms
            at_ms = cron_after(window.cron, window.timezone, at_ms)

    def expected(self, begin_ms: int, until_ms: int) -> UptimeSpan:
        """Return what was between two moments, counted from the facts alone."""
        sums: Counter[str] = Counter()
        facts = [*self.facts, Fact(self.clock.now_ms(), None)]
        for fact, following in pairwise(facts):
            start_ms, end_ms = max(fact.at_ms, begin_ms), min(following.at_ms, fact.stale_ms, until_ms)
            if fact.up is None or start_ms >= end_ms:
                continue
            touching = [(a, b) for a, b in self.maintenance() if a < end_ms and b > start_ms]
            cuts = sorted({start_ms, end_ms, *(c for window in touching for c in window if start_ms < c < end_ms)})
            for a, b in pairwise(cuts):
                is_excused = any(start <= a and b <= end for start, end in touching)
                sums["excused_ms" if is_excused else "up_ms" if fact.up else "down_ms"] += b - a
        counted = [each for each in self.counted if begin_ms <= each[0] < until_ms]
        sums.update("ok" if up else "failed" for _, up, _ in counted)
        timed = Counter(latency for _, _, latency in counted if latency is not None)
        return UptimeSpan(latency=dict(timed), **sums)


async def test_uptime_is_what_a_brute_force_counts_to_the_millisecond(torture: bool) -> None:
    for seed in range(2_500 if torture else 40):
        life = Life(seed)
        await life.live()
        now_ms = life.clock.now_ms()
        found = (await life.store.uptime.read([OTHER, JOB], now_ms, SPANS, 90))[JOB]

        for name, ms in SPANS.items():
            unit_ms = DAY_MS if name == "365d" else HOUR_MS
            begin_ms = (now_ms - ms) // unit_ms * unit_ms
            assert found.spans[name] == life.expected(begin_ms, now_ms + 1), (seed, name)
        assert list(found.days) == [now_ms - now_ms % DAY_MS - back * DAY_MS for back in range(89, -1, -1)]
        for start_ms, day in found.days.items():
            assert day == life.expected(start_ms, start_ms + DAY_MS), (seed, start_ms)
