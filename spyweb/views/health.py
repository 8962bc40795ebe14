"""The health of the daemon: whether it makes progress, and what it measures of itself.

What starves the watchdog, `/healthz` calls failing too; and beside it a disk that is full, which no restart cures.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from spyweb.lua.session import PoolStats, WorkerInfo
from spyweb.settings.units import MINUTE_MS, format_duration
from spyweb.stalls import LoopStats
from spyweb.store.model.entries import StoreStats
from spyweb.views.jobs import JobState

SCHEDULER_STALLED_MS = 5_000  # far beyond what the loop promises, so no passing delay
STALLS_SHOWN_MS = 10 * MINUTE_MS
STORAGE_ERRORS_SHOWN_MS = 10 * MINUTE_MS
WRITER_STALLED_S = 10.0  # even a slow disk syncs much sooner
SLOW_COMMIT_S = 0.1  # a disk syncs in a few ms
SCARCE_DESCRIPTORS = 64
SCHEDULER, STORE, DISK, WORKERS = "scheduler", "store", "disk", "workers"  # parts of the daemon
NO_WORKER = "no worker is up, so no script runs: the log says why"


class ChoreHealth(Struct, frozen=True, kw_only=True):
    """A periodic chore of the daemon, and how it went the last time."""

    name: str
    every_s: float
    last_at_ms: int | None = None  # None: not yet
    last_took_ms: int | None = None
    next_at_ms: int | None = None
    error: str = ""  # why it failed, if it did


class HeartbeatHealth(Struct, frozen=True, kw_only=True):
    """The pings of `[heartbeat] url`, and how the last one went."""

    every_s: float
    last_at_ms: int | None = None  # None: none yet
    problem: str = ""  # what the watcher was told; empty: that all is well
    error: str = ""  # why it has not arrived


class Vitals(Struct, frozen=True, kw_only=True):
    """The measurements that the daemon takes of itself."""

    version: str
    pid: int
    uptime_s: float
    scheduler_lag_ms: int  # how long the oldest due time has been waiting to be dealt with
    store: StoreStats
    pool: PoolStats
    storage_errors: int  # store calls of scripts that failed since the start
    storage_error_at_ms: int | None = None  # the latest of them
    refused_ms: int = 0  # how long the store has refused to claim what is due of a job
    dead_messages: int = 0  # webhooks and notifications that were given up
    troubled_channels: Sequence[str] = ()  # alert channels with which something is wrong
    server_is_broken: bool = False  # server/init.lua as it is on disk does not load
    refused_connections: str = ""  # why the HTTP server has just refused some
    descriptors_left: int = 1 << 16  # that this process can still open
    server_url: str = ""  # where the HTTP server listens; empty: it is switched off
    dashboard_url: str = ""  # the same, or another while the project serves content
    loop: LoopStats = field(default_factory=LoopStats)
    held_back: Mapping[str, str] = field(default_factory=dict)  # job → why its runs are not begun any more
    chores: Sequence[ChoreHealth] = ()
    heartbeat: HeartbeatHealth | None = None  # None: nobody is pinged
    now_ms: int = 0


class Health(Struct, frozen=True, kw_only=True):
    status: str  # "ok", or "failing"
    problems: Sequence[str]  # why it is not ok
    version: str
    pid: int
    uptime_s: float
    scheduler_lag_ms: int
    store: StoreStats
    workers: Sequence[WorkerInfo]
    worker_deaths: int
    quarantined: Mapping[str, str]  # job → why
    rights: Sequence[str]  # what workers have given up, and what could not be
    jobs: Mapping[str, int]  # how many in each state
    storage_errors: int
    loop: LoopStats = field(default_factory=LoopStats)
    held_back: Mapping[str, str] = field(default_factory=dict)  # job → why its runs are not begun any more
    chores: Sequence[ChoreHealth] = ()
    heartbeat: HeartbeatHealth | None = None  # None: nobody is pinged
    server_url: str = ""  # where the HTTP server listens; empty: it is switched off
    dashboard_url: str = ""  # the same, or another while the project serves content
    warnings: Sequence[str] = ()  # what somebody should look at, though the daemon makes progress


class Trouble(NamedTuple):
    """Something that is wrong with a part of the daemon."""

    part: str
    text: str
    lasting_ms: int = 0  # so far, where that is known
    text_now: str = ""  # the text with how long it has lasted, which is true for a moment only

    @property
    def words(self) -> str:
        return self.text_now or self.text


def find_problems(scheduler_lag_ms: int, store: StoreStats) -> list[str]:
    """Return why the daemon makes no progress; an empty list where it does."""
    return [trouble.words for trouble in _problems(scheduler_lag_ms, store)]


def find_all_problems(vitals: Vitals) -> list[str]:
    """Return why the daemon makes no progress, that which a restart would not cure too."""
    return [trouble.words for trouble in _all_problems(vitals)]


def find_parts(vitals: Vitals) -> dict[str, Trouble]:
    """Return the parts of the daemon with which something is wrong that keeps jobs from running, each with what."""
    found = list(_all_problems(vitals))
    if _lacks_workers(vitals):
        found.append(Trouble(WORKERS, NO_WORKER))
    return {trouble.part: trouble for trouble in reversed(found)}  # of several the first


def _problems(scheduler_lag_ms: int, store: StoreStats) -> Iterator[Trouble]:
    if scheduler_lag_ms > SCHEDULER_STALLED_MS:
        now = f"the scheduler is {format_duration(scheduler_lag_ms)} behind"
        yield Trouble(SCHEDULER, "the scheduler is behind", scheduler_lag_ms, now)
    if store.failed:
        yield Trouble(STORE, f"nothing is stored: {store.failed.replace(_folder_of(store.path), '')}")
    if store.stalled_s > WRITER_STALLED_S:
        now = f"a write has waited {store.stalled_s:.0f}s for the disk"
        yield Trouble(DISK, "a write waits for the disk", round(store.stalled_s * 1000), now)


def _all_problems(vitals: Vitals) -> Iterator[Trouble]:
    yield from _problems(vitals.scheduler_lag_ms, vitals.store)
    if vitals.refused_ms > SCHEDULER_STALLED_MS:
        now = f"no due run could be claimed for {format_duration(vitals.refused_ms)}: the log says why"
        yield Trouble(STORE, "no due run could be claimed: the log says why", vitals.refused_ms, now)


def _lacks_workers(vitals: Vitals) -> bool:
    return not any(worker.pid for worker in vitals.pool.workers)


def _folder_of(path: str) -> str:
    """Return the folder's part of a path, since strangers are not told where the database lies."""
    return path.removesuffix(os.path.basename(path))


def find_warnings(vitals: Vitals, short_monitors: int = 0, drifting: int = 0) -> list[str]:
    warnings = [*_of_jobs(short_monitors, drifting), *_of_messages(vitals)]
    if vitals.server_is_broken:
        warnings.append("the server's file does not load: `spyweb check` says why")
    if _lacks_workers(vitals):
        warnings.append(NO_WORKER)
    warnings += [*_scarce(vitals), *_waiting(vitals.pool)]
    if vitals.store.commit_s > SLOW_COMMIT_S:
        took = format_duration(round(1000 * vitals.store.commit_s))
        warnings.append(f"the disk is slow: each commit takes {took} or longer, and whatever is stored waits for it")
    if vitals.heartbeat and vitals.heartbeat.error:
        warnings.append("the heartbeat does not arrive: `spyweb health` says why")
    loop = vitals.loop
    if loop.last_at_ms is not None and vitals.now_ms - loop.last_at_ms < STALLS_SHOWN_MS:
        warnings.append("the event loop was held up: `spyweb health` and the log say by what")
    failed_at_ms = vitals.storage_error_at_ms
    if failed_at_ms is not None and vitals.now_ms - failed_at_ms < STORAGE_ERRORS_SHOWN_MS:
        warnings.append("what scripts store is refused: `spyweb runs` shows of which runs, the log says why")
    if vitals.held_back:
        were = "jobs have" if len(vitals.held_back) > 1 else "job has"
        warnings.append(f"{len(vitals.held_back)} {were} held up the daemon too often: `spyweb health` says which")
    return warnings


def _of_jobs(short_monitors: int, drifting: int) -> Iterator[str]:
    if short_monitors:
        do = "monitors do" if short_monitors > 1 else "monitor does"
        yield f"{short_monitors} {do} not find what is expected: `spyweb jobs` says which"
    if drifting:
        jobs = "jobs have" if drifting > 1 else "job has"
        yield f"{drifting} {jobs} files that are not as their runs left them: `spyweb drift` lists them"


def _of_messages(vitals: Vitals) -> Iterator[str]:
    if count := vitals.dead_messages:
        plural, were = ("s", "were") if count > 1 else ("", "was")
        yield f"{count} message{plural} never arrived and {were} given up: `spyweb outbox` lists them"
    if vitals.troubled_channels:
        names = ", ".join(vitals.troubled_channels)
        yield f"something is wrong with how people are told ({names}): `spyweb alerts list` says what"


def _scarce(vitals: Vitals) -> Iterator[str]:
    if vitals.refused_connections:
        yield vitals.refused_connections
    if vitals.descriptors_left < SCARCE_DESCRIPTORS:
        yield f"only {vitals.descriptors_left} file descriptors are left: raise LimitNOFILE, or `ulimit -n`"


def _waiting(pool: PoolStats) -> Iterator[str]:
    if pool.waiting:
        runs = "runs wait" if pool.waiting > 1 else "run waits"
        most = f"at most {pool.most_own} jobs with `exec` or `isolation` have one at a time"
        yield f"{pool.waiting} {runs} for a process: {most}, a third of the file descriptors"


def view_health(vitals: Vitals, states: Iterable[JobState], short_monitors: int = 0, drifting: int = 0) -> Health:
    problems = find_all_problems(vitals)
    return Health(
        status="failing" if problems else "ok",
        problems=problems,
        version=vitals.version,
        pid=vitals.pid,
        uptime_s=round(vitals.uptime_s, 3),
        scheduler_lag_ms=vitals.scheduler_lag_ms,
        store=vitals.store,
        workers=vitals.pool.workers,
        worker_deaths=vitals.pool.deaths,
        quarantined={str(job): why for job, why in vitals.pool.quarantined.items()},
        rights=vitals.pool.rights,
        jobs=count_states(states),
        storage_errors=vitals.storage_errors,
        loop=vitals.loop,
        held_back=vitals.held_back,
        chores=list(vitals.chores),
        heartbeat=vitals.heartbeat,
        server_url=vitals.server_url,
        dashboard_url=vitals.dashboard_url,
        warnings=find_warnings(vitals, short_monitors, drifting),
    )


def count_states(states: Iterable[JobState]) -> dict[str, int]:
    counts = Counter(states)
    return {state.value: counts[state] for state in JobState}


def summarize(health: Health) -> dict[str, object]:
    """Select what anybody who can reach the port may know: no job names, no paths, no process ids."""
    store = health.store
    return {
        "status": health.status,
        "problems": list(health.problems),
        "warnings": list(health.warnings),
        "version": health.version,
        "uptime_s": health.uptime_s,
        "scheduler_lag_ms": health.scheduler_lag_ms,
        "loop": {"stalls": health.loop.stalls, "worst_ms": health.loop.worst_ms},
        "jobs": dict(health.jobs),
        "workers": len(health.workers),
        "worker_deaths": health.worker_deaths,
        "storage_errors": health.storage_errors,
        "store": {
            "last_commit_ms": store.last_commit_ms,
            "errors": store.errors,
            "pending": store.pending,
            "oldest_pending_s": round(store.oldest_pending_s, 3),
        },
    }
