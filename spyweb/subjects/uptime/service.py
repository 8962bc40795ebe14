"""For how long jobs were up, as clients see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from spyweb.clock import Clock
from spyweb.model import JobId
from spyweb.settings.units import DAY_MS
from spyweb.store.model.uptime import READ_AT_ONCE, SPANS, JobUptime, UptimeSpan, begin_of
from spyweb.store.sqlite.uptime import Uptimes
from spyweb.views.runs import copied


class SpanView(Struct, frozen=True, kw_only=True):
    """A span of time; `uptime` is the share of the time that is known and not excused."""

    since_ms: int
    until_ms: int
    uptime: float | None  # 0 to 1; null where nothing is known
    up_ms: int
    down_ms: int
    excused_ms: int  # maintenance
    unknown_ms: int  # without a result, paused, disabled or absent
    ok: int
    failed: int
    latency_p50_ms: float | None  # of the successes: right to 9.1 %
    latency_p95_ms: float | None


class UptimeView(Struct, frozen=True, kw_only=True):
    """The result of a job that holds now, and its uptime."""

    job: JobId
    up: bool | None  # null where nothing is known
    since_ms: int | None  # of the latest result
    until_ms: int | None  # so long it holds, without another
    spans: Mapping[str, SpanView]  # 24h, 7d, 30d and 365d
    days: Sequence[SpanView] = ()  # of UTC, today last; of one job


@dataclass(frozen=True, slots=True, kw_only=True)
class UptimeService:
    store: Uptimes
    clock: Clock

    async def look(self, jobs: Sequence[JobId], *, days: int = 0) -> list[UptimeView]:
        """Return the uptime of jobs, and of each of so many days."""
        views, now_ms = list[UptimeView](), self.clock.now_ms()
        for first in range(0, len(jobs), READ_AT_ONCE):
            found = await self.store.read(jobs[first : first + READ_AT_ONCE], now_ms, SPANS, days)
            views += [view_uptime(job, uptime, now_ms) for job, uptime in found.items()]
        return views


def view_uptime(job: JobId, found: JobUptime, now_ms: int) -> UptimeView:
    spans = {name: view_span(span, begin_of(name, now_ms), now_ms) for name, span in found.spans.items()}
    days = [view_span(day, start_ms, min(start_ms + DAY_MS, now_ms)) for start_ms, day in found.days.items()]
    return copied(UptimeView, found, job=job, spans=spans, days=days)


def view_span(span: UptimeSpan, since_ms: int, until_ms: int) -> SpanView:
    unknown_ms = max(0, until_ms - since_ms - span.up_ms - span.down_ms - span.excused_ms)
    p50, p95 = span.percentile(50), span.percentile(95)
    times = {"since_ms": since_ms, "until_ms": until_ms, "unknown_ms": unknown_ms}
    return copied(SpanView, span, uptime=span.uptime, latency_p50_ms=p50, latency_p95_ms=p95, **times)
