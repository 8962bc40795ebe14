"""Plain frozen data for all floors: jobs, schedules, runs.

Values that are made at each run are Structs, here and elsewhere: a frozen dataclass takes much longer to make.

All times are integer milliseconds: durations end in `_ms`, moments are epoch milliseconds UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, NewType, TypeAlias

import msgspec
from msgspec import Struct

from spyweb.errors import Problem
from spyweb.incidents.policy import NOBODY, AlertPolicy
from spyweb.null import NULL as NULL
from spyweb.null import Null as Null
from spyweb.permissions.policy import ANYTHING, Policy

JobId = NewType("JobId", str)
RunId = NewType("RunId", int)


class BranchId(NamedTuple):
    """A branch: one of the functions of a run that are under way at once."""

    run: RunId
    branch: int


Owner = RunId | BranchId  # of a transaction

MIB = 1 << 20


# A value of Lua as Python sees it: strings are bytes, a table whose keys are 1..n is a list, any other a dict.
# None is nil: it stands for "no value", and is never inside a table.
ValueKey: TypeAlias = bytes | int | float | bool
Value: TypeAlias = "Null | bool | int | float | bytes | list[Value] | dict[ValueKey, Value] | None"


class HistoryRule(Struct, frozen=True, kw_only=True):
    """The rule for which past versions of a namespace's entries are kept."""

    versions: int | None = None  # at most so many of each key, at least 1
    age_ms: int | None = None  # until they were replaced or deleted this long ago


class Start(StrEnum):
    """The moment at which a job that has no cursor yet is first due."""

    NOW = "now"
    INTERVAL = "interval"


class Isolation(StrEnum):
    SHARED = "shared"  # a VM among others in a worker
    PROCESS = "process"  # a separate worker


class Overlap(StrEnum):
    """The rule for a job that is due while a run of it is in flight."""

    SKIP = "skip"
    QUEUE = "queue"  # at most QUEUE_LIMIT wait
    REPLACE = "replace"
    ALLOW = "allow"


class MisfirePolicy(StrEnum):
    """The rule for due times that passed while nothing could run."""

    ONCE = "once"  # the last of them runs, the others are recorded
    SKIP = "skip"
    ALL = "all"


class Backoff(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class Outcome(StrEnum):
    """The outcome of a run, or of a due time that did not run."""

    SUCCESS = "success"
    FAILED = "failed"
    LOST = "lost"  # its worker or the daemon died
    STOPPED = "stopped"  # a planned stop
    SKIPPED = "skipped"  # overlap, a condition, or the script said that there was nothing to do
    MISSED = "missed"  # due while the daemon was down
    PAUSED = "paused"  # due while the job was paused, disabled or absent


class RunMark(StrEnum):
    """A run in one letter, as a strip of many runs shows it.

    They are: `s` success, `t` late (a success that began late), `f` failed, `c` cancelled (somebody
    asked for it), `l` lost, `x` stopped, `k` skipped, `m` missed, `p` paused, `r` running, `w` waiting.
    """

    SUCCESS = "s"
    LATE = "t"
    FAILED = "f"
    CANCELLED = "c"
    LOST = "l"
    STOPPED = "x"
    SKIPPED = "k"
    MISSED = "m"
    PAUSED = "p"
    RUNNING = "r"
    WAITING = "w"


class Failure(StrEnum):
    """The reason why a run is `failed`."""

    ERROR = "error"
    TIMEOUT = "timeout"
    CPU = "cpu"
    MEMORY = "memory"
    CANCELLED = "cancelled"


class ChangeKind(StrEnum):
    """A kind of change of a stored value."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    EXPIRED = "expired"  # found by a sweep, or by a write over it


WRITTEN: Final = frozenset({ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED})


class TriggerType(StrEnum):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    STATE = "state"
    AFTER = "after"
    WEBHOOK = "webhook"
    STARTUP = "startup"
    RETRY = "retry"
    DRIFT = "drift"
    ALERT = "alert"  # an incident of the job, handled by a function of its own file
    DEPENDS = "depends"  # a job that depends on it is failing


class Trigger(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of what started a run.

    Its JSON is in the database, in the API and, less what is internal, in `ctx.trigger`.  Any field may be missing: the
    record of a run that was not made has only the type.
    """

    type: str = ""  # a TriggerType, or what a later version has written; empty: the record is damaged
    of: RunId | None = None  # retry: the first attempt
    retry_of: RunId | None = None  # retry that a person asked for: the run whose finished tasks are taken over
    hook: str = ""  # alert: the function of the job's file that is called
    incident: Mapping[str, object] = {}  # alert: the event that it is called with
    values: Mapping[str, object] = {}  # manual: values of the person, stronger than the job's
    payload: object = None  # manual, webhook: what was sent along, any JSON
    payload_stored: bool = False  # webhook: the payload is kept apart, since it is large
    headers: Mapping[str, str] = {}  # webhook
    query: Mapping[str, str] = {}  # webhook
    traceparent: str = ""  # manual, webhook: the trace that the request belongs to
    ping: str = ""  # webhook, of a run elsewhere: the text of its ping, `start` or the outcome
    rid: str = ""  # likewise: by which the sender of the ping knows the run
    debug: bool = False  # manual: a monitor job shows what it finds and keeps nothing of it
    dry_run: bool = False  # manual: nothing is changed
    watched: bool = False  # manual: a person waits for the end of the run (`spyweb run`)
    event_type: str = ""  # state
    scope: str = ""  # state
    key: object = None  # state: text, or what stands for bytes in JSON
    event: int | None = None  # state: the change event, which keeps the values
    by: RunId | None = None  # state: whose change it was
    when: Sequence[str] = []  # state: the condition functions, of which one must allow the run
    job: str = ""  # after, depends: the other job
    run_id: RunId | None = None  # after: the run that has ended
    outcome: str = ""  # after
    incident_id: int | None = None  # depends
    finding: str | None = None  # drift: it only reports what differs; empty: nothing any more
    repairs: str = ""  # drift: what differs
    depth: int = 0  # of the chain of changes that led to it
    lost: int = 0  # retry: how many attempts were lost without fault
    cut_short: int = 0  # retry: how many attempts the end of their daemon has cut short
    cause: Trigger | None = None  # retry: the change of state that started its first attempt
    resumes: RunId | None = None  # retry: the first run of the chain whose tasks it continues
    resumable: bool = False  # its job had `resume` when the run was claimed

    @property
    def change(self) -> Trigger | None:
        """Return the change of state that started the run, or the first attempt of it."""
        found = self.cause or self
        return None if found.event is None else found

    @property
    def change_event(self) -> int | None:
        return (self.cause or self).event

    @property
    def subject(self) -> tuple[str, str] | None:
        """Return what changed: runs of one subject keep the order of its changes."""
        return (self.change.scope, str(self.change.key)) if self.change else None

    @property
    def is_trial(self) -> bool:
        """Return whether a run only shows what it finds or would do: it replaces no other, and nothing follows it."""
        return self.dry_run or self.debug

    @property
    def is_aside(self) -> bool:
        """Return whether a run is not the job's own work, so that its end says nothing about the job."""
        return self.is_trial or bool(self.incident)

    @property
    def is_owed(self) -> bool:
        """Return whether the trigger of a run starts no other run, so that this run must not be given up."""
        return self.change is not None or bool(self.incident)

    @property
    def stands_alone(self) -> bool:
        """Return whether nothing follows a run, however it ends: neither a retry nor another job."""
        return self.is_trial or self.watched


class RunState(StrEnum):
    WAITING = "waiting"  # claimed: queued behind another run, or a retry whose delay has not passed
    RUNNING = "running"
    ENDED = "ended"


class Every(Struct, frozen=True, kw_only=True):
    period_ms: int


class Cron(Struct, frozen=True, kw_only=True):
    expression: str
    timezone: str


class At(Struct, frozen=True, kw_only=True):
    at_ms: int


class Never(Struct, frozen=True, kw_only=True):
    """A schedule without due times: only triggers and people start the job."""


class Pings(Struct, frozen=True, kw_only=True):
    """A schedule that starts nothing: the job runs elsewhere, and sends a ping each time."""

    schedule: Every | Cron  # when a ping is expected
    grace_ms: int = 0  # how much later it may come


Schedule = Every | Cron | At | Never | Pings


class Misfire(Struct, frozen=True, kw_only=True):
    policy: MisfirePolicy = MisfirePolicy.ONCE
    grace_ms: int | None = None  # None: however late
    limit: int = 100  # runs made up for under `all`


class Retry(Struct, frozen=True, kw_only=True):
    retries: int = 0
    delay_ms: int = 10_000
    backoff: Backoff = Backoff.EXPONENTIAL
    max_delay_ms: int = 600_000
    jitter: bool = True


class After(Struct, frozen=True, kw_only=True):
    """Start when a run of another job has ended with one of these outcomes, after its last attempt."""

    job: JobId
    outcomes: frozenset[Outcome] = frozenset({Outcome.SUCCESS})


class On(Struct, frozen=True, kw_only=True):
    """Start when a stored value changes."""

    namespace: str  # of the store; with `is_prefix`, the prefix of several
    is_prefix: bool = False
    key: bytes = b"*"  # a pattern: `*` is any run of characters, `?` one
    kinds: frozenset[ChangeKind] = msgspec.field(default=WRITTEN)
    when: str | None = None  # a Lua function that may say no


class Rotation(StrEnum):
    """The rule that chooses the proxy of the next request."""

    ROUND_ROBIN = "RoundRobin"
    STICKY = "Sticky"  # one for each worker, for as long as the job's version lives
    RANDOM = "Random"


class OnHookError(StrEnum):
    """The effect of a hook's error on its cycle."""

    SKIP = "skip"  # it is logged, and the cycle goes on as if the hook were absent
    FAIL = "fail"


class Durability(StrEnum):
    """The failures that an acknowledged write survives."""

    FULL = "full"  # the machine losing its power
    NORMAL = "normal"  # the daemon being killed


class OnStoreError(StrEnum):
    """The effect on the script of a failed call of `store_*`, or of positional `state.*`."""

    LOG = "log"  # it gives nil or its default; the run is marked
    RAISE = "raise"  # it is an error of the script, and the run is marked


class Expect(StrEnum):
    """The pings of a job that runs elsewhere."""

    PING = "ping"


@dataclass(frozen=True, slots=True, kw_only=True)
class PingAddresses:
    """The addresses of a monitoring service, pinged by a job's runs: may hold ${NAME}, and {job} for its id."""

    base: str = field(default="", repr=False)  # with /start and /fail behind it; or the three:
    start: str = field(default="", repr=False)
    success: str = field(default="", repr=False)
    fail: str = field(default="", repr=False)
    is_own: bool = False  # the job's own file says it, not config.toml: its policy must permit it


class OnEmpty(StrEnum):
    """The effect on a monitor's run when it and the runs before it have found less than expected."""

    WARN = "warn"
    FAIL = "fail"


class FirstFind(StrEnum):
    """The treatment of the items that the first cycle of an address finds."""

    ANNOUNCE = "announce"
    SILENT = "silent"  # they are stored, and no notification is sent


class Field(Struct, frozen=True, kw_only=True):
    """One value of each item."""

    name: str
    selector: str  # empty: the item itself
    attribute: str | None = None  # None: its text


class Proxies(Struct, frozen=True, kw_only=True):
    urls: tuple[str, ...]
    rotation: Rotation = Rotation.ROUND_ROBIN


class Webhook(Struct, frozen=True, kw_only=True):
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    secret: str = ""  # where it is found: env:NAME or credential:NAME; empty: nothing is signed


class Notification(Struct, frozen=True, kw_only=True):
    """Texts may hold {job_name} {url} {item_count} {timestamp} {matches} {match_count} and {FIELD}."""

    title: str | None = None  # None: the built-in text
    body: str | None = None
    timeout_ms: int | None = None  # None: the desktop's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    """The settings of a monitor job: its pages, and the handling of their items."""

    urls: tuple[str, ...]  # at least one
    is_queue: bool = False  # written as `urls`: each is fetched once; a single `url` is fetched by every worker
    selector: str
    fields: tuple[Field, ...]
    workers: int = 1
    keywords: tuple[str, ...] = ()
    search_fields: tuple[str, ...] = ()  # empty: all fields
    hash_fields: tuple[str, ...] = ()  # empty: all fields that are not tracked
    track: tuple[str, ...] = ()  # fields whose changes are recorded and announced
    first: FirstFind = FirstFind.ANNOUNCE
    to: tuple[str, ...] = ()  # notification channels that are notified of new and changed items
    headers: tuple[tuple[str, str], ...] = ()
    proxies: Proxies | None = None
    webhook: Webhook | None = None
    notification: Notification | None = None
    debug: bool = False  # each cycle leaves ID-response.html and ID-fields.json in the job's folder
    on_hook_error: OnHookError = OnHookError.SKIP
    expect_status: tuple[tuple[int, int], ...] = ((200, 299),)  # ranges of HTTP statuses, each with its ends
    min_items: int | None = None  # of a run; None: one, where an earlier run has found any
    on_empty: OnEmpty = OnEmpty.WARN
    empty_after: int = 3  # runs in a row that did not find what is expected, before that is reported
    # The places of the keys that hold selectors: only an extractor can check whether they are valid.
    places: Mapping[str, Problem] = field(default_factory=dict, compare=False, repr=False)


class HookSigning(StrEnum):
    """The way in which a request to a job's hook shows that its sender knows the secret."""

    PLAIN = "plain"  # the secret itself, in a header
    GITHUB = "github"  # an HMAC of the body, and so the others, with the time
    STRIPE = "stripe"
    SPYWEB = "spyweb"


class JobHook(Struct, frozen=True, kw_only=True):
    """The settings of /api/hooks/JOB."""

    secret: str = ""  # where it is found: env:NAME or credential:NAME; empty: a key is needed, as everywhere
    signing: HookSigning = HookSigning.PLAIN
    headers: tuple[str, ...] = ()  # those that the script sees, in lower case


NO_HOOK = JobHook()


class RecordRule(StrEnum):
    """The runs of a job whose ops are recorded: the last of them, so that they can be replayed."""

    FAILED = "failed"  # those that did not succeed
    ALWAYS = "always"
    NEVER = "never"


class JobSpec(Struct, frozen=True, kw_only=True):
    """A job's settings, after every override."""

    id: JobId
    name: str
    path: str  # its Lua file, a monitor's config.toml or jobs.toml, relative to the project root
    folder: str  # its folder, relative to the project root; may not exist yet
    description: str = ""
    tags: tuple[str, ...] = ()
    enabled: bool = True
    schedule: Schedule = msgspec.field(default_factory=lambda: Every(period_ms=600_000))
    jitter_ms: int = 0
    start: Start = Start.NOW
    timeout_ms: int = 300_000
    cpu_limit_ms: int = 10_000
    memory_limit: int = 64 * MIB  # bytes
    isolation: Isolation = Isolation.SHARED
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = msgspec.field(default_factory=Misfire)
    retry: Retry = msgspec.field(default_factory=Retry)
    after: tuple[After, ...] = ()
    on: tuple[On, ...] = ()
    agent: str = "local"  # whose namespace positional state.* uses
    history: HistoryRule | None = None  # of what it keeps with store_*
    on_store_error: OnStoreError | None = None  # None: as [store] on_error says
    values: str = ""  # what its script sees in `values`, as JSON text; empty: nothing
    drift_ms: int | None = None  # between two comparisons of its resources with the files; None: none
    node: str = ""  # the one that runs it; empty: any
    labels: tuple[str, ...] = ()  # that a node needs to run it
    drift_repair: bool = False  # the job is started where something differs; else that is a failed run
    resume: bool = False  # a run that was lost or stopped is followed by one that goes on with its tasks
    record: RecordRule = RecordRule.FAILED
    policy: Policy = ANYTHING  # what it may reach
    hook: JobHook = NO_HOOK
    ping: PingAddresses | None = None  # addresses that its runs ping
    alerts: AlertPolicy = NOBODY  # what opens an incident of it, and the channels to notify
    monitor: Monitor | None = None  # None: a script job
    check: str | None = None  # the kind of a check, a script job whose script comes with spyweb


class Cursor(Struct, frozen=True, kw_only=True):
    """The moment up to which a job's schedule has been dealt with, as it is stored."""

    job: JobId
    due_ms: int  # the last due time dealt with: run, or recorded with a reason
    schedule: str  # the schedule that it was computed with, as text, to notice an edit made while nothing ran
    paused: bool = False
    idle_since_ms: int | None = None  # since when the job has been paused, disabled or absent
    paused_for: str = ""  # the reason, if spyweb paused it
    active_since_ms: int | None = None  # since when it has been added, was put on this schedule, or last came back
    pool: str = ""  # of slots (ownership.py): the owner of its slot there runs the job, and alone moves it elsewhere


class Run(Struct, frozen=True, kw_only=True):
    """One execution of a job, or a range of due times that did not run and why."""

    id: RunId
    job: JobId
    state: RunState
    attempt: int = 1
    due_ms: int | None = None  # None: not from the schedule
    trigger: Trigger = Trigger()
    start_after_ms: int | None = None  # waiting: not before this moment
    started_ms: int | None = None
    ended_ms: int | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    reason: str = ""  # one line: the error, or why it did not run
    traceback: str = ""
    cpu_ms: int = 0
    storage_errors: int = 0
    result: str = ""  # the beginning of what its script returned, a table as JSON
    http_status: int | None = None  # a monitor's run: how the page answered; the worst of several
    items_found: int | None = None  # a monitor's run: how many items its pages had; None: no page was parsed
    items_new: int | None = None  # records: of new items, and of changed ones
    items_changed: int | None = None  # of these records
    note: str = ""  # a remark for people, on one line
    generation: int = 0
    last_due_ms: int | None = None  # a skipped range: due_ms is its first due time, this its last
    count: int = 1  # a skipped range: how many due times


class TaskStatus(StrEnum):
    """The end of one task of a run."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"  # by its condition, or since a task before it had not succeeded
    UNCHANGED = "unchanged"  # a success that says `changed = false`


class TaskRow(Struct, frozen=True, kw_only=True):
    """The end of one task, as it is kept with its run."""

    ordinal: int  # in the order of definition, from 0 on
    workflow: str  # empty: the file has none
    name: str
    status: TaskStatus
    attempts: int  # 0: none was made, or it was made by the run that this one resumes
    started_ms: int | None  # None: it was skipped for another task
    ended_ms: int
    message: str = ""
    output: bytes | None = None  # msgpack, a list of one value
    taken_from: RunId | None = None  # the run that performed it, where this one has taken over the result


class TaskBegun(Struct, frozen=True, kw_only=True):
    """The start of one task, for watchers of its run."""

    ordinal: int
    workflow: str
    name: str


class Ending(Struct, frozen=True, kw_only=True):
    """The end of one attempt, as its worker reported it, or as the loss of the worker implies."""

    outcome: Outcome
    failure: Failure | None = None
    reason: str = ""
    traceback: str = ""
    cpu_ms: int = 0
    result: object = None  # what the script returned, when it can be shown
    preview: Mapping[str, object] | None = None  # instead of the result, for a monitor's debug run: what it would find
    storage_errors: int = 0  # these six as in Run
    http_status: int | None = None
    items_found: int | None = None
    items_new: int | None = None
    items_changed: int | None = None
    note: str = ""
    globals_reset: bool = False  # the VM was discarded with its globals
    declined: bool = False  # skipped by a condition: it counts as if it had not begun
    guilty: bool = False  # lost: this run was being stepped when its worker died
    record: tuple[str, bytes] | None = None  # of its ops, as it is stored: a type, and data
