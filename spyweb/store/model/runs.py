"""The runs of a store: the changes recorded together, and questions about many runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from spyweb.model import Cursor, Ending, JobId, Outcome, Run, RunId, RunMark, RunState, Trigger, TriggerType
from spyweb.store.model.entries import WantedChange
from spyweb.store.model.incidents import ScriptTold, SubjectEvent
from spyweb.store.model.messages import NewMessage
from spyweb.words import counted, round_duration


class RequestKey(Struct, frozen=True, kw_only=True):
    """The key that a client has given a request, so that repeating the request starts no second run."""

    scope: str  # whose keys they are: those of one job
    key: bytes  # a hash
    fingerprint: bytes  # of what was asked: another request by the same key is an error
    at_ms: int


class NewRun(Struct, frozen=True, kw_only=True):
    """A run to be recorded.  (job, due_ms, attempt) is unique where due_ms is given; `trigger` is kept as JSON."""

    job: JobId
    state: RunState  # RUNNING, or WAITING for its turn
    trigger: Trigger
    attempt: int = 1
    due_ms: int | None = None
    start_after_ms: int | None = None
    started_ms: int | None = None
    generation: int = 0
    follows: RunId | None = None  # a run that ends in the same change: recorded only if that end applies
    payload: bytes | None = None  # kept apart, since it is large, until no run has to do with it
    of_payload: RunId | None = None  # the run with which the payload was kept that this one needs
    request: RequestKey | None = None  # recorded with it


class Begin(Struct, frozen=True, kw_only=True):
    """The start of a waiting run."""

    run: RunId
    started_ms: int
    generation: int = 0


class End(Ending, frozen=True, kw_only=True):
    """The end of a run, with the changes recorded together with it."""

    run: RunId
    ended_ms: int
    result: str = ""  # as text
    event: int | None = None  # the change event that had started it
    alert: SubjectEvent | None = None  # what it means for its job's incidents, where it may change them
    ping: NewMessage | None = None  # the message to a watcher elsewhere
    stale_ms: int | None = None  # until when it may hold as the result of its job; None: it says nothing about it
    latency: int | None = None  # of a success: the number of its bucket
    of_payload: RunId | None = None  # its payload is dropped, unless a run that follows it needs it


class SkippedRange(Struct, frozen=True, kw_only=True):
    """Due times, or changes of state, that start no run, and the reason.

    They share one row: the newest row of their job is extended when it has the same outcome and reason.
    """

    job: JobId
    outcome: Outcome  # SKIPPED, MISSED or PAUSED
    first_due_ms: int
    last_due_ms: int
    count: int
    reason: str
    at_ms: int  # when it was dealt with
    trigger: TriggerType = TriggerType.SCHEDULE
    follows: RunId | None = None  # as of a NewRun


class ScheduleStep(Struct, frozen=True, kw_only=True):
    """A job goes on by a schedule: after `due_ms` its due times count; those of the steps before up to `until_ms`."""

    job: JobId
    until_ms: int
    due_ms: int  # also the cursor by which due times are computed
    schedule: str  # as text, with its time zone
    run: int = 0  # the newest row of the job before it, as it was found when this was recorded


class Change(Struct, frozen=True, kw_only=True):
    """Changes of jobs and runs that are committed together, or not at all."""

    expects: Mapping[JobId, Cursor | None] = {}  # as they must be on record (None: absent), or the change is refused
    cursors: Sequence[Cursor] = ()
    new: Sequence[NewRun] = ()
    begin: Sequence[Begin] = ()
    end: Sequence[End] = ()
    skipped: Sequence[SkippedRange] = ()
    steps: Sequence[ScheduleStep] = ()  # of the cursors
    heard: Mapping[JobId, int] = {}  # jobs that run elsewhere, and when a ping came: their cursors
    dropped: Sequence[WantedChange] = ()  # changes that start no run of the job that wanted them
    told: Sequence[ScriptTold] = ()  # the incidents that the new runs report to jobs' files


# A change that is committed, and the ids of its new runs; without ids where its caller no longer waited for them.
Recorded = Callable[[Change, "Sequence[RunId | None] | None"], None]
DueKind = Literal["ran", "late", "skipped", "missed", "paused", "waiting", "unexplained"]  # waiting: or not handled yet


class KnownRequest(Struct, frozen=True, kw_only=True):
    """A request that was answered."""

    fingerprint: bytes
    run: RunId
    at_ms: int


class DueRow(NamedTuple):
    """A row about due times: a run, or a range that did not run."""

    first_ms: int
    last_ms: int
    times: int
    range: RunId | None  # the id of a range; None: it is a run
    kind: DueKind
    reason: str


NO_TIME = -1  # in a strip: the run took no time that is known


class StripWish(NamedTuple):
    """A job whose newest runs are asked for."""

    job: JobId
    late_ms: int  # a success that began later than this is a late one


class RunStrip(Struct, frozen=True, kw_only=True):
    """The newest runs of a job, oldest first."""

    ids: Sequence[int] = ()
    marks: str = ""  # a RunMark each
    took_ms: Sequence[int] = ()  # NO_TIME where it took none, or is not over


class FailingSeries(Struct, frozen=True, kw_only=True):
    """The unbroken series of failures with which the runs of a job end so far."""

    since_ms: int
    count: int  # retries of a run that failed are not counted
    first: RunId


class RunFilter(Struct, frozen=True, kw_only=True):
    """The filter of a search for runs; an empty sequence stands for all."""

    job: JobId | None = None
    outcomes: Sequence[Outcome] = ()
    triggers: Sequence[TriggerType] = ()
    own: bool = False  # without dry runs, debug runs and alert hooks
    began_skipped: bool = True  # also those that began, and were then skipped by their script or a condition
    since_ms: int | None = None
    until_ms: int | None = None  # not included


class RunPage(Struct, frozen=True, kw_only=True):
    """The runs that were found, newest first, and where to go on."""

    runs: Sequence[Run]
    before: RunId | None  # None: this was the last page


class RunPoint(NamedTuple):
    """A run as a chart shows it, in JSON `[run, at_ms, took_ms, late_ms, mark]`."""

    run: int
    at_ms: int  # when it began
    took_ms: int  # or the latency that a check has measured; NO_TIME where it has not
    late_ms: int  # after its due time; 0 where it had none, or is a retry
    mark: RunMark


SOON_DAYS, LAST_DAYS = 14, 3  # of a certificate: from there on its end is a warning, and bad


class CheckResult(Struct, frozen=True, kw_only=True):
    """The result of a check that succeeded; each kind has some of these fields."""

    latency: float | None = None  # in ms
    status: int | None = None
    loss: float | None = None  # 0 to 1
    cert_days: int | None = None  # of the certificate of an address
    days: int | None = None  # the same of kind tls

    @property
    def certificate_days(self) -> int | None:
        return self.days if self.cert_days is None else self.cert_days

    @property
    def tone(self) -> str:
        """Return `warn` or `bad` where the certificate ends soon."""
        days = self.certificate_days
        return "" if days is None or days >= SOON_DAYS else "warn" if days >= LAST_DAYS else "bad"

    @property
    def words(self) -> str:
        """Return `85 ms, 200, certificate 43 days`."""
        days = self.certificate_days
        parts = [
            "" if self.latency is None else round_duration(self.latency),
            str(self.status or ""),
            f"{self.loss:.0%} lost" if self.loss else "",
            "" if days is None else f"certificate {counted(days, 'day')}",
        ]
        return ", ".join(filter(None, parts))


_read = msgspec.json.Decoder(CheckResult).decode


def check_result_in(text: str) -> CheckResult | None:
    """Return the result that a run has on record; None where it is none of a check."""
    try:
        return _read(text)
    except msgspec.DecodeError:
        return None


PlannedTask = tuple[str, str]  # workflow and name; its ordinal is its place among them


class RunPlan(Struct, frozen=True, kw_only=True):
    """The tasks of a run as its script declared them, and the code that did."""

    code: Mapping[str, str]  # path -> digest; "": the job's own files
    tasks: Sequence[PlannedTask] = ()  # none where they are too many to be drawn
    needs: Sequence[Sequence[int]] = ()  # of each task, the ordinals of the tasks that it depends on
