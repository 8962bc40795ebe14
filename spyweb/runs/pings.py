"""Record the runs of jobs that run elsewhere, from the pings that report them.

A `start` ping makes a run that is in flight until a ping with the same `rid` (or none, if it had none) reports its end;
without one the run fails at its job's timeout.  A ping that reports an end of no known run makes a run that starts and
ends at once.  The trigger of a run holds the ping, so a crash between the two commits of such a run loses nothing.
"""

from __future__ import annotations

from asyncio import shield
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from spyweb.clock import Clock, Handle
from spyweb.errors import Refused
from spyweb.model import Ending, Failure, Outcome, Pings, Run, RunId, Trigger, TriggerType
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import FAIL, START, SUCCESS
from spyweb.runs.runner import LOST, Runner
from spyweb.settings.units import format_duration

MOST_STARTED = 100  # runs of one job under way
LONGEST_LOG = 10_000  # bytes of the log sent with a ping that are kept: its end
LONGEST_LINE = 200  # characters of the log that become the reason of a run

WriteLine = Callable[[str, str, str, int], None]  # folder, level, text, run


class Ping(Struct, frozen=True):
    """A report that a run has begun, or how it has ended."""

    says: str  # start, success, fail, or an exit code
    rid: str = ""  # the sender's id of the run
    text: str = ""  # its log


class PingRuns:
    """Turns pings into runs."""

    def __init__(self, *, runner: Runner, live: LiveJobs, write_line: WriteLine, clock: Clock) -> None:
        self._runner = runner
        self._live = live
        self._write_line = write_line
        self._clock = clock
        self._timers: dict[RunId, Handle] = {}  # of runs under way: at their timeout

    async def hear(self, job: LiveJob, ping: Ping) -> RunId:
        """Record a ping, and return its run.  Raises Refused where the job accepts none."""
        if not job.spec.enabled:
            raise Refused(f"{job.id} is disabled")
        under_way = (run for run in job.queue.in_flight.values() if run.id in self._timers)
        started = max((run for run in under_way if run.trigger.rid == ping.rid), key=lambda run: run.id, default=None)
        trigger = Trigger(type=TriggerType.WEBHOOK, ping=ping.says, rid=ping.rid)
        if ping.says == START:
            if started is not None and ping.rid:
                return started.id  # a repetition
            if len(job.queue.in_flight) >= MOST_STARTED:
                raise Refused(f"{job.id}: {MOST_STARTED} runs are under way already")
            run = await self._runner.begin_elsewhere(job, trigger)
            self._wait_for_end(job, run)
            self._keep_log(job, run, ping.text)
            return run.id
        run = started or await self._runner.begin_elsewhere(job, trigger)
        self._keep_log(job, run, ping.text)
        await self._end(job, run, ending_of(ping.says, ping.text))
        return run.id

    async def take_up(self, runs: Sequence[Run], lost: Ending = LOST) -> None:
        """Take over the runs that an earlier daemon recorded: its end did not stop those that happen elsewhere."""
        await self._runner.take_up([run for run in runs if not run.trigger.ping], lost)
        for run in [run for run in runs if run.trigger.ping]:
            job, said = self._live.find(run.job), run.trigger.ping
            if job is None or not isinstance(job.spec.schedule, Pings):
                await self._runner.take_up([run], lost)
                continue
            job.queue.in_flight[run.id] = run
            if said == START:
                self._wait_for_end(job, run)
            else:
                await self._end(job, run, ending_of(said, ""))

    async def _end(self, job: LiveJob, run: Run, ending: Ending) -> None:
        """Record the end of a run; later pings no longer refer to it."""
        self._forget(run)
        await shield(self._runner.end_elsewhere(job, run, ending, self._clock.now_ms()))

    def _wait_for_end(self, job: LiveJob, run: Run) -> None:
        left_ms = (run.started_ms or 0) + job.spec.timeout_ms - self._clock.now_ms()
        left_ms = max(0, min(left_ms, job.spec.timeout_ms))  # a clock that was set back must not lengthen the wait
        self._timers[run.id] = self._clock.call_later(left_ms / 1000, partial(self._give_up, job, run))

    def _give_up(self, job: LiveJob, run: Run) -> None:
        self._forget(run)
        if run.id in job.queue.in_flight:
            within = format_duration(job.spec.timeout_ms)
            reason = f"no ping reported its end within {within}"
            ending = Ending(outcome=Outcome.FAILED, failure=Failure.TIMEOUT, reason=reason)
            self._runner.end_elsewhere(self._live.current(job), run, ending, self._clock.now_ms())

    def _forget(self, run: Run) -> None:
        timer = self._timers.pop(run.id, None)
        if timer is not None:
            timer.cancel()

    def _keep_log(self, job: LiveJob, run: Run, text: str) -> None:
        for line in text.splitlines():
            self._write_line(job.spec.folder, "info", line, run.id)


def ending_of(says: str, text: str) -> Ending:
    """Return the ending that a ping reports, with the last line of its log as the reason."""
    if says in (SUCCESS, "0"):
        return Ending(outcome=Outcome.SUCCESS)
    reason = "it reported a failure" if says == FAIL else f"exit code {says}"
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    if last:
        reason += f": {last[:LONGEST_LINE]}"
    return Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=reason)
