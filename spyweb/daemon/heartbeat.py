"""Ping `[heartbeat] url` while spyweb is healthy, so that a monitoring service notices when it is not.

A running process is not enough: a ping is sent if, within the last two minutes, no due run has waited, a test write was
committed, a worker has answered, and no message about an incident has waited.  Otherwise the reason is sent to
`url/fail`.  Pings bypass the outbox: a late ping would be false.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from spyweb.clock import Clock
from spyweb.cooperative import within
from spyweb.errors import STORE_REFUSED, FetchError
from spyweb.ops.network.request import Fetch, Http, parse_url
from spyweb.outbox.redaction import hide_webhook
from spyweb.settings.addresses import expand
from spyweb.settings.sections import HeartbeatSettings
from spyweb.settings.units import MINUTE_MS, SECOND_MS, format_duration
from spyweb.store.model.messages import Channel
from spyweb.store.sqlite.store import Store
from spyweb.subjects.health.views import SCHEDULER_STALLED_MS, HeartbeatHealth

log = structlog.get_logger()

TIMEOUT_S = 10.0
WRITE_PATIENCE_S = 10.0
SILENCE_S = 120.0  # after which a part of the daemon counts as stuck
LONGEST_UNTOLD_MS = 15 * MINUTE_MS
FAIL_EVERY_S = 60.0
LARGEST_ANSWER = 1000  # bytes
# The problems that are reported for a part of the daemon that is stuck.
SCHEDULER, WRITER, WORKERS = "due runs do not start", "nothing is stored", "no worker answers"
PARTS = (SCHEDULER, WRITER, WORKERS)


@dataclass(kw_only=True, eq=False)
class Heartbeat:
    settings: Callable[[], HeartbeatSettings]
    http: Http
    store: Store
    lag_ms: Callable[[], int]  # how long the oldest due time has been waiting, or has been refused by the store
    answering: Callable[[], int]  # workers that answer
    environ: Mapping[str, str]
    clock: Clock

    health: HeartbeatHealth | None = None  # None: no pings are sent
    _write: Future[None] | None = None  # a write that is not on the disk yet
    _refusal: str = ""  # why the last one was not committed
    _next: float | None = None  # ping, by the monotonic clock
    _next_fail: float = 0.0
    _seen: dict[str, float] = field(default_factory=dict)  # when each part last made progress, by the monotonic clock

    async def look(self) -> None:
        """Check each part of the daemon, and ping if that is due."""
        settings, now = self.settings(), self.clock.monotonic()
        if not settings.url:
            self._next = self.health = None
            return
        if self._next is None:
            self._seen = dict.fromkeys(PARTS, now)
            self.health = HeartbeatHealth(every_s=settings.every_ms / SECOND_MS)
        if self.lag_ms() <= SCHEDULER_STALLED_MS:
            self._seen[SCHEDULER] = now
        if self.answering():
            self._seen[WORKERS] = now
        due = now if self._next is None else min(self._next, now + settings.every_ms / SECOND_MS)
        if now >= due:
            self._next = max(due + settings.every_ms / SECOND_MS, now)
            await self._beat(settings)

    async def _beat(self, settings: HeartbeatSettings) -> None:
        await self._try_to_write()
        try:
            waiting = await self.store.outbox.backlogs(Channel.ALERT)
        except STORE_REFUSED:
            waiting = {}  # which the write has shown as well
        now, problems = self.clock.monotonic(), list[str]()
        for what, since in self._seen.items():
            if now - since >= SILENCE_S:
                why = f" ({self._refusal})" if what is WRITER and self._refusal else ""
                problems.append(f"{what}{why}, for {format_duration(round(now - since) * SECOND_MS)} now")
        now_ms = self.clock.now_ms()
        age_ms = now_ms - min((backlog.oldest_ms for backlog in waiting.values()), default=now_ms)
        if age_ms > LONGEST_UNTOLD_MS:
            age = format_duration(age_ms // SECOND_MS * SECOND_MS)
            problems.append(f"a message about an incident has waited for {age}")
        if not problems:
            await self._ping(settings, "")
        elif now >= self._next_fail:
            self._next_fail = now + FAIL_EVERY_S
            await self._ping(settings, "; ".join(problems))

    async def _try_to_write(self) -> None:
        """Write something, and wait a while for its commit; one write at a time."""
        write = self._write = self._write or self.store.try_write()
        if not await within(self.clock, WRITE_PATIENCE_S, write):
            return
        self._write = None
        error = None if write.cancelled() else write.exception()
        if error is None:
            self._seen[WRITER], self._refusal = self.clock.monotonic(), ""
        elif isinstance(error, STORE_REFUSED):
            reason = str(error)
            self._refusal = type(error).__name__ if "/" in reason else reason  # another service must not see paths
        else:
            raise error

    async def _ping(self, settings: HeartbeatSettings, problem: str) -> None:
        error = await self._send(settings.url, problem)
        last = self.health.error if self.health else ""
        if error and not last:
            log.warning("the heartbeat has not arrived", reason=error)
        elif last and not error:
            log.info("the heartbeat arrives again")
        self.health = HeartbeatHealth(
            every_s=settings.every_ms / SECOND_MS, last_at_ms=self.clock.now_ms(), problem=problem, error=error
        )

    async def _send(self, template: str, problem: str) -> str:
        """Send one ping, with the problem if there is one; return why it was not delivered, or an empty text."""
        try:
            address = expand(template, self.environ)
        except ValueError as error:
            return str(error)
        try:
            url = parse_url(address.encode())
            if problem:  # /fail behind the path, before a query
                url = url.with_path(f"{url.raw_path.rstrip('/')}/fail", encoded=True, keep_query=True)
            fetch = Fetch(
                url=url,
                method="POST" if problem else "GET",
                headers={"Content-Type": "text/plain; charset=utf-8"} if problem else {},
                body=problem.encode() if problem else None,
                timeout_s=TIMEOUT_S,
                largest=LARGEST_ANSWER,
                whole=False,
            )
            response = await self.http.fetch(fetch)
        except FetchError as error:
            return f"{error.kind}: {hide_webhook(str(error), address)}"
        return "" if 200 <= response.status < 300 else f"answered {response.status}"
