"""Start runs by hand, watch them, and cancel them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.model import MIB, Ending, JobId, Run, RunId, TaskBegun, TaskRow
from spyweb.permissions.policy import Audit
from spyweb.runs.live import LiveJobs
from spyweb.runs.runner import Claims, Runner, by_hand
from spyweb.service.once import OnceService, StartedRun, request_key
from spyweb.service.past_runs import PastRunsService
from spyweb.store.model.runs import RequestKey
from spyweb.views.jobs import to_json
from spyweb.views.runs import RunEnded, RunEvent, log_line, run_ended, view_task

MOST_LOG_BYTES = MIB  # of a watched run's lines that wait; who reads more slowly misses some, and is told how many
LINE_BYTES = 256  # that a line takes beside its text


@dataclass(slots=True)
class RunWatcher:
    """Queues what a run's observer sees for the client that watches."""

    clock: Clock
    audit: Audit | None = None
    is_watched: bool = True  # whoever watches may leave before the run ends
    _waiting: asyncio.Queue[tuple[RunEvent, int]] = field(default_factory=asyncio.Queue)
    _size: int = 0
    _dropped: int = 0

    def log(self, level: str, text: bytes) -> None:
        if not self.is_watched:
            return
        if self._size + len(text) + LINE_BYTES > MOST_LOG_BYTES:
            self._dropped += 1
            return
        self._tell_of_dropped()
        self._put(level, text)

    def task(self, event: TaskBegun | TaskRow) -> None:
        if self.is_watched:
            self._tell_of_dropped()
            self._waiting.put_nowait((view_task(event), 0))

    def ended(self, run: Run, ending: Ending) -> None:
        self._tell_of_dropped()
        self._waiting.put_nowait((run_ended(run, ending, self.clock.now_ms(), self.audit), 0))

    async def next(self) -> RunEvent:
        event, size = await self._waiting.get()
        self._size -= size
        return event

    def _tell_of_dropped(self) -> None:
        if self._dropped:
            self._put("warn", b"%d lines came faster than they were read and are not shown" % self._dropped)
            self._dropped = 0

    def _put(self, level: str, text: bytes) -> None:
        size = len(text) + LINE_BYTES
        self._size += size
        self._waiting.put_nowait((log_line(level, text, self.clock.now_ms()), size))


@dataclass(slots=True, kw_only=True)
class RunService:
    live: LiveJobs
    runner: Runner
    past: PastRunsService
    once: OnceService
    clock: Clock
    is_traced: bool = False  # runs join the traces of the requests that start them

    async def start(self, job: JobId, payload: object = None, key: str | None = None, parent: str = "") -> StartedRun:
        """Start a run, or queue it.  Raises Refused where a due time would be skipped, and at a stop.

        Its script finds the payload, any JSON, in its trigger; with a key, a request that is repeated starts no
        second run.
        """
        live, request, known = self.live.get(job), by_hand(payload=payload, parent=parent), None
        if key is not None:
            known = request_key(f"trigger {job}", key, to_json(payload), self.clock.now_ms())

        def begin(key: RequestKey | None) -> Claims:
            return self.runner.start_by_hand(live, structs.replace(request, key=key))

        return await self.once.start(known, begin)

    async def cancel(self, run: RunId) -> Run | None:
        """Have a run end that is under way, or give up one that waits; return it as it was, or None if there is none.

        Raises Refused where it has ended.
        """
        found = await self.past.find(run)
        if found is not None and not self.runner.cancel(run):
            raise Refused(f"run {run} of {found.job} is not under way: `spyweb runs {found.job}` shows how it ended")
        return found

    async def run_once(
        self,
        job: JobId,
        *,
        debug: bool = False,
        audit: bool = False,
        dry_run: bool = False,
        values: Mapping[str, object] | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Run a job by hand: yield its log lines as they come, then its end.  With `debug` a monitor job keeps nothing.

        With `audit` the end says which permissions it has used.  With `dry_run` it changes nothing.

        Raises Refused, before the first event, when it can't start.  Whoever stops watching closes the generator; the
        run itself goes on.
        """
        watcher = RunWatcher(self.clock, Audit() if audit else None)
        await self.runner.start_by_hand(
            self.live.get(job), by_hand(watcher, debug=debug, dry_run=dry_run, values=values)
        )
        try:
            while True:
                event = await watcher.next()
                yield event
                if isinstance(event, RunEnded):
                    return
        finally:
            watcher.is_watched = False
