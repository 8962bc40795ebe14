"""Run one job in the foreground, without a daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import structlog
from msgspec import Struct, field

from spyweb.clock import Clock, RealClock
from spyweb.daemon.runtime import JobRuntime, keep_history, open_runtime
from spyweb.errors import STORE_REFUSED, ConfigError, Refused
from spyweb.model import Ending, JobId, Run, TaskBegun, TaskRow
from spyweb.permissions.policy import Audit
from spyweb.reload.swap import make_live_job
from spyweb.runs.runner import by_hand
from spyweb.settings.load import load_settings
from spyweb.specs.discover import scan
from spyweb.specs.watches import watches_of
from spyweb.store.lock import hold_lock
from spyweb.store.opening import refuse_beside_nodes
from spyweb.views.runs import RunEnded, RunEvent, log_line, run_ended, view_task

log = structlog.get_logger()

SENDING_S = 5.0  # how long messages may take after a run


class RunRelay(Struct):
    """Passes each event of a run on at once."""

    on_event: Callable[[RunEvent], None]
    clock: Clock
    audit: Audit | None = None
    over: asyncio.Future[RunEnded] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def log(self, level: str, text: bytes) -> None:
        self._show(log_line(level, text, self.clock.now_ms()))

    def task(self, event: TaskBegun | TaskRow) -> None:
        self._show(view_task(event))

    def ended(self, run: Run, ending: Ending) -> None:
        event = run_ended(run, ending, self.clock.now_ms(), self.audit)
        self._show(event)
        if not self.over.done():  # Ctrl-C has ended the waiting, and this is the end of the run
            self.over.set_result(event)

    def _show(self, event: RunEvent) -> None:
        """Show an event, and stop waiting when the output is closed (`spyweb run JOB | head`)."""
        try:
            self.on_event(event)
        except SystemExit as error:
            if not self.over.done():
                self.over.set_exception(error)


async def run_once(  # noqa: PLR0913 - each is an option of a manual run
    root: Path,
    job: JobId,
    on_event: Callable[[RunEvent], None],
    on_sending: Callable[[int], None],
    *,
    debug: bool = False,
    audit: bool = False,
    dry_run: bool = False,
    values: Mapping[str, object] | None = None,
) -> RunEnded:
    """Run a job once, in this process's own workers.  The run is recorded as manual, and nothing follows it.

    `on_sending` is called with the number of messages before they are sent.
    """
    settings = load_settings(root, environ=os.environ, flags={})
    found = scan(root, settings)
    file, clock = found.jobs.get(job), RealClock()
    if file is None:
        raise ConfigError(list(found.broken[job])) if job in found.broken else Refused(f"{job} was removed")
    async with AsyncExitStack() as stack:
        stack.enter_context(hold_lock(settings.daemon.data_dir, root=settings.root, clock=clock))
        settings = replace(settings, daemon=replace(settings.daemon, workers=1))
        runtime = await open_runtime(stack, settings, clock)
        await refuse_beside_nodes(runtime.store)
        stack.push_async_callback(runtime.runner.drain, 0)  # Ctrl-C: the run is ended, and recorded as stopped
        runtime.live.on_linked(lambda: keep_history(runtime.live, runtime.store, settings))
        runtime.store.events.watch(watches_of(each.spec for each in found.jobs.values()))  # for the next daemon
        watching = RunRelay(on_event, runtime.clock, Audit() if audit else None)
        live = make_live_job(file)
        runtime.live.add(live)
        runtime.live.link()
        await runtime.runner.start_by_hand(live, by_hand(watching, debug=debug, dry_run=dry_run, values=values))
        over = await watching.over
        if not dry_run:
            await send_messages(runtime, live.id, on_sending)
        return over


async def send_messages(runtime: JobRuntime, job: JobId, on_sending: Callable[[int], None]) -> None:
    """Send a job's messages; the daemon sends the undelivered ones later."""
    try:
        count = len(await runtime.outbox_sender.due(job))
        if count:
            on_sending(count)
            await runtime.outbox_sender.send_due(job, SENDING_S)
    except STORE_REFUSED as error:
        log.error("messages are left for the daemon", reason=str(error))
