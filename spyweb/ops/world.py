"""The World, which is all that ops may reach, built once by the daemon; and the Call, which names the asking run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import force_setattr

from spyweb.clock import Clock, RealClock
from spyweb.errors import OpError
from spyweb.extraction.extractor import Extractor
from spyweb.histogram import FINE_SECONDS, Histogram
from spyweb.lua.session import Lineage
from spyweb.model import MIB, BranchId, JobId, OnStoreError, Owner, RunId, TaskBegun, TaskRow
from spyweb.ops.files.artifacts import FOLDER, Artifacts
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.network.request import Http
from spyweb.ops.notify_desktop import Desktop
from spyweb.ops.sources import Sources
from spyweb.ownership import Ownership
from spyweb.permissions.policy import ANYTHING, Audit, Policy, Refusal
from spyweb.programs.runner import CommandRunner
from spyweb.settings.sections import StateSettings
from spyweb.stalls import StallRecorder
from spyweb.store.dry_values import DryValues
from spyweb.store.model.entries import NOBODY, Origin, agent_namespace, job_namespace
from spyweb.store.model.incidents import AlertChannelNow
from spyweb.store.model.runs import PlannedTask
from spyweb.store.sqlite.store import Store
from spyweb.store.sqlite.values import Values
from spyweb.store.user_sql.user_db import UserDatabase
from spyweb.tracing.span import Tracer, TraceSpan

JobLog = Callable[[str, bytes], None]  # level, text


TellTask = Callable[[TaskBegun | TaskRow], None]


def untold(event: TaskBegun | TaskRow) -> None:
    """Tell nobody of a task: no one watches its run."""


def unheard(level: str, text: bytes) -> None:
    """Drop a line, as long as there is no log."""


class AlertChannels(Protocol):
    """The notification channels of the settings, as they are now."""

    def names(self) -> Collection[str]: ...

    def find(self, name: str, job: JobId, now_ms: int) -> AlertChannelNow | None:
        """Return a channel, with the end of the quiet hours that it is in for this job."""

    def day(self, now_ms: int) -> str:
        """Return what day it is in the daemon's time zone."""


class StateMetrics(Struct):
    """The counters that state.stats() shows."""

    reads: int = 0
    writes: int = 0
    times: Histogram = field(default_factory=partial(Histogram, FINE_SECONDS))


class Metrics(Struct):
    """Counters of ops since start, by name."""

    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)  # refused, or failed, with or without raising (store_*)
    storage_errors: Counter[str] = field(default_factory=Counter)  # the store failed, the script went on
    storage_error_at_ms: int | None = None  # the last; None: there was none
    state: StateMetrics = field(default_factory=StateMetrics)


class World(Struct, frozen=True, kw_only=True):
    """All that outlives a run."""

    store: Store
    clock: Clock
    http: Http
    sources: Sources
    files: Files
    locks: LockKeeper
    sql: UserDatabase
    commands: CommandRunner
    extractor: Extractor
    channels: AlertChannels
    artifacts: Artifacts = field(default_factory=partial(Artifacts, Path(), Path(FOLDER)))
    desktop: Desktop = field(default_factory=partial(Desktop, {}))  # none
    state: StateSettings = field(default_factory=StateSettings)
    on_store_error: OnStoreError = OnStoreError.LOG
    metrics: Metrics = field(default_factory=Metrics)
    stalls: StallRecorder = field(default_factory=StallRecorder)
    tracer: Tracer | None = None
    ownership: Ownership = field(default_factory=lambda: Ownership(RealClock()))

    def run_ended(self, run: RunId) -> None:
        """Tell the parts that keep something for a run that its end is committed."""
        self.locks.run_ended(run)
        self.sql.run_ended(run)

    def call_ended(self, run: RunId) -> None:
        """Note the end of a call without a row (a request, a load or a test), which frees its locks."""
        self.locks.release(run)
        self.run_ended(run)

    def branch_ended(self, branch: BranchId) -> None:
        """Free the locks of a branch of a run, and roll back the transaction that it left open."""
        self.locks.branch_ended(branch)
        self.sql.run_ended(branch)


class Tally(Struct):
    """The counters of one run while it lasts."""

    storage_errors: int = 0  # calls of store_* that failed without raising in the script
    sql_cpu_s: float = 0.0  # of db_query and db_exec
    plan: Sequence[PlannedTask] = ()  # the tasks that the run has said it has
    kept: int = 0  # calls that have left a row in the scope `resources`
    imagined: set[str] = field(default_factory=set)  # what a dry run would have made: files and folders
    dry_values: DryValues | None = None  # what it would have stored


class Call(Struct, frozen=True, kw_only=True):
    """The first parameter of every op: the asking run, and the world."""

    world: World
    job: JobId
    run: RunId
    generation: int
    folder: str  # the job's, relative to the project root
    memory_limit: int = 64 * MIB  # bytes, of the job's VM: nothing larger could be passed to it
    cpu_limit_ms: int | None = None  # of its SQL; None: there is none
    tally: Tally = msgspec.field(default_factory=Tally)
    agent: str = "local"  # whose namespace positional state.* uses
    depth: int = 0  # the number of state triggers that led to this run, one after another
    on_store_error: OnStoreError | None = None  # the job's own; None: the world's
    log: JobLog = unheard  # the job's own
    resumes: bool = False  # it takes over the finished tasks of an earlier run
    code: str = ""  # the digest of the job's own files
    tell_task: TellTask = untold
    policy: Policy = ANYTHING  # what it may reach
    audit: Audit | None = None  # notes what it does reach
    node: str = ""  # the only one that runs it; empty: any may
    is_recorded: bool = False  # its run is on record, and so is what it keeps in a state
    is_dry: bool = False  # it changes nothing, and says what it would
    lineage: Lineage = ()  # of the branch that asks
    trace: TraceSpan | None = None  # of the run, where it is traced
    # Not passed, but computed from the others:
    owner: Owner = RunId(0)  # of its transactions
    origin: Origin = NOBODY  # of every write of this run
    namespace: str = ""  # of store_*
    state_namespace: str = ""  # of positional state.*

    def __post_init__(self) -> None:
        force_setattr(self, "owner", BranchId(self.run, self.lineage[0]) if self.lineage else self.run)
        force_setattr(self, "origin", Origin(job=self.job, run=self.run, depth=self.depth))
        force_setattr(self, "namespace", job_namespace(self.job))
        agent = "local" if self.world.state.shared_agents else self.agent
        force_setattr(self, "state_namespace", agent_namespace(agent))

    @property
    def values(self) -> Values:
        """Return the stored values; those of a dry run are forgotten with it."""
        if not self.is_dry:
            return self.world.store.values
        self.tally.dry_values = self.tally.dry_values or DryValues(self.world.store.values, self.world.clock)
        return self.tally.dry_values

    def permit(self, function: str, check: str, *arguments: object) -> None:
        """Ask one of the checks of the policy.  Raises OpError, which names the key to add."""
        refusal = getattr(self.policy, check)(*arguments)
        if refusal is not None:
            raise self.refused(function, refusal)
        if self.audit is not None:
            self.audit.note(check, *arguments)

    def root_of(self, function: str, path: str) -> str:
        """Return the root below which an absolute path without `..` lies.  Raises OpError."""
        found = self.policy.path(path)
        if isinstance(found, Refusal):
            raise self.refused(function, found)
        if self.audit is not None:
            self.audit.note("path", found)
        return found

    def gate(self, function: str) -> NetGate:
        """Return what asks the policy about the hosts of a request."""
        return NetGate(self.policy, self.job, function, self.audit)

    def refused(self, function: str, refusal: Refusal) -> OpError:
        return OpError(refusal.text(function, self.job))
