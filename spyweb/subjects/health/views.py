"""The health of the daemon: whether it makes progress, and its measurements.

A state in which the watchdog would restart the daemon is failing for `/healthz`, too; so is a full disk, which no
restart fixes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from spyweb.lua.session import PoolStats, WorkerInfo
from spyweb.settings.units import MINUTE_MS, format_duration
from spyweb.stalls import LoopStats
from spyweb.store.model.entries import StoreStats
from spyweb.subjects.health.remedies import BACKUP, CLAIMS, DISK, POSTGRES, REMEDIES, SCHEDULER, STORE, WORKERS
from spyweb.views.jobs import JobState
from spyweb.views.runs import copied
from spyweb.words import counted

SCHEDULER_STALLED_MS = 5_000  # far beyond what the loop promises, so no passing delay
SHOWN_MS = 10 * MINUTE_MS  # after a stall, and after an error of the store
WRITER_STALLED_S = 10.0  # even a slow disk syncs much sooner
SLOW_COMMIT_S = 0.1  # a disk syncs in a few ms
SCARCE_DESCRIPTORS = 64
CLOCK_OFF_MS = 1_000
PART_OF = {CLAIMS: STORE, POSTGRES: STORE}  # the part of the daemon that has a problem, where that is not its code


class ChoreHealth(Struct, frozen=True, kw_only=True):
    """A periodic chore of the daemon, with its last run."""

    name: str
    every_s: float
    last_at_ms: int | None = None  # None: not yet
    last_took_ms: int | None = None
    next_at_ms: int | None = None
    error: str = ""  # of the last run


class HeartbeatHealth(Struct, frozen=True, kw_only=True):
    """The pings of `[heartbeat] url`, with the last one."""

    every_s: float
    last_at_ms: int | None = None  # None: none yet
    problem: str = ""  # that the last ping reported; empty: none
    error: str = ""  # why the last ping has not arrived


class ClusterVitals(Struct, frozen=True, kw_only=True):
    """The cluster as one of its nodes knows it, by its last beat."""

    nodes: int  # that are alive
    owned: int  # slots of this node
    unowned: int  # slots that no living node owns
    answered_ms: int  # when the database answered the last beat, by this node's clock
    offset_ms: int  # of the database's clock to this node's
    is_answered: bool = True  # the latest beat was
    unserved: Sequence[str] = ()  # pools with jobs that no node may run
    dead: Sequence[str] = ()  # nodes that were declared dead, and have not come back


class Measured(Struct, frozen=True, kw_only=True):
    """The measurements of a daemon that are shown as they were taken."""

    version: str
    pid: int
    uptime_s: float
    scheduler_lag_ms: int  # age of the oldest due time that was not handled yet
    store: StoreStats
    storage_errors: int  # store calls of scripts that failed since the start
    loop: LoopStats = field(default_factory=LoopStats)
    held_back: Mapping[str, str] = field(default_factory=dict)  # job → why its runs no longer start
    chores: Sequence[ChoreHealth] = ()
    heartbeat: HeartbeatHealth | None = None  # None: not configured
    server_url: str = ""  # where the HTTP server listens; empty: it is switched off
    dashboard_url: str = ""  # the same, or another while the project serves content
    cluster: ClusterVitals | None = None  # None: the daemon is alone on its database


class Vitals(Measured, frozen=True, kw_only=True):
    """The measurements that the daemon takes of itself."""

    pool: PoolStats
    storage_error_at_ms: int | None = None  # the latest of them
    refused_ms: int = 0  # how long the store has refused to claim a due run
    dead_messages: int = 0  # webhooks and notifications that were given up
    troubled_channels: Sequence[str] = ()  # notification channels with problems
    server_is_broken: bool = False  # server/init.lua as it is on disk does not load
    refused_connections: str = ""  # why the HTTP server has refused connections lately
    descriptors_left: int = 1 << 16  # that this process can still open
    now_ms: int = 0


class HealthProblem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem of the daemon, with its remedy."""

    code: str
    text: str
    remedy: str
    page: str = "health"  # "jobs", "runs", "outbox" or "drift": the page that shows more
    lasting_ms: int = 0  # so far, where that is known
    timeless: str = ""  # the text without durations; with the code it identifies the problem


class Health(Measured, frozen=True, kw_only=True):
    status: str  # "ok", or "failing"
    problems: Sequence[str]  # why it is not ok
    workers: Sequence[WorkerInfo]
    worker_deaths: int
    quarantined: Mapping[str, str]  # job → why
    rights: Sequence[str]  # the sandbox of workers, with missing protections
    jobs: Mapping[str, int]  # how many in each state
    warnings: Sequence[str] = ()  # that need attention, though the daemon makes progress
    advice: Sequence[HealthProblem] = ()  # the problems, then the warnings, each with its remedy


class Restriction(Struct, frozen=True):
    """Why the runs of a job are restricted, after it harmed the daemon."""

    kind: Literal["quarantined", "held back"]
    reason: str


class Readiness(Struct, frozen=True, kw_only=True):
    ready: bool
    reasons: list[str]  # why it is not


def find_problems(scheduler_lag_ms: int, store: StoreStats) -> list[str]:
    """Return why the daemon makes no progress; an empty list where it does."""
    return [problem.text for problem in _problems(scheduler_lag_ms, store)]


def problem(code: str, text: str, *, page: str = "health", timeless: str = "", lasting_ms: int = 0) -> HealthProblem:
    """Return a problem, with the remedy for its code."""
    remedy = REMEDIES[code]
    return HealthProblem(code=code, text=text, remedy=remedy, page=page, timeless=timeless, lasting_ms=lasting_ms)


def find_all_problems(vitals: Vitals) -> list[HealthProblem]:
    """Return why the daemon makes no progress, including problems that a restart would not fix."""
    found = list(_problems(vitals.scheduler_lag_ms, vitals.store))
    if vitals.cluster and not vitals.cluster.is_answered:
        away_ms = max(0, vitals.now_ms - vitals.cluster.answered_ms)
        text = f"PostgreSQL has not answered for {format_duration(away_ms // 1000 * 1000)}: soon nothing runs here"
        found.append(problem(POSTGRES, text, timeless="PostgreSQL does not answer", lasting_ms=away_ms))
    if vitals.refused_ms > SCHEDULER_STALLED_MS:
        text = f"no due run could be claimed for {format_duration(vitals.refused_ms)}: the log says why"
        timeless = "no due run could be claimed: the log says why"
        found.append(problem(CLAIMS, text, timeless=timeless, lasting_ms=vitals.refused_ms))
    return found


def find_parts(vitals: Vitals) -> dict[str, HealthProblem]:
    """Return the parts of the daemon with a problem that opens an incident, each with its first problem."""
    found = find_all_problems(vitals)
    if _lack_workers(vitals):
        found.append(NO_WORKERS)
    if _lacks_backup(vitals):
        found.append(NO_BACKUP)
    return {PART_OF.get(each.code, each.code): each for each in reversed(found)}  # the first of several


def _problems(scheduler_lag_ms: int, store: StoreStats) -> Iterator[HealthProblem]:
    if scheduler_lag_ms > SCHEDULER_STALLED_MS:
        text = f"the scheduler is {format_duration(scheduler_lag_ms)} behind"
        yield problem(SCHEDULER, text, timeless="the scheduler is behind", lasting_ms=scheduler_lag_ms)
    if store.failed:
        # Strangers do not learn the path of the database.
        folder = store.path.removesuffix(os.path.basename(store.path))
        yield problem(STORE, f"nothing is stored: {store.failed.replace(folder, '')}")
    if store.stalled_s > WRITER_STALLED_S:
        text = f"a write has waited {store.stalled_s:.0f}s for the disk"
        yield problem(DISK, text, timeless="a write waits for the disk", lasting_ms=round(store.stalled_s * 1000))


NO_BACKUP = problem(BACKUP, "the last backup that was due could not be made: `spyweb health` says why")
NO_WORKERS = problem(WORKERS, "no worker is up, so no script runs: the log says why")


def _lack_workers(vitals: Vitals) -> bool:
    return not any(worker.pid for worker in vitals.pool.workers)


def _lacks_backup(vitals: Vitals) -> bool:
    return any(chore.name == BACKUP and chore.error for chore in vitals.chores)


def find_warnings(vitals: Vitals, short_monitors: int = 0, drifting: int = 0) -> list[HealthProblem]:
    """Return the warnings: problems that need attention, though the daemon makes progress."""
    found: list[HealthProblem] = []

    def note(is_there: object, code: str, text: str, *, page: str = "health", timeless: str = "") -> None:
        if is_there:
            found.append(problem(code, text, page=page, timeless=timeless))

    text = f"{counted(short_monitors, 'monitor finds', 'monitors find')} less than expected: "
    note(short_monitors, "monitors", f"{text}`spyweb jobs` says which", page="jobs")
    text = f"{counted(drifting, 'job has', 'jobs have')} files that others have changed: "
    note(drifting, "drift", f"{text}`spyweb drift` lists them", page="drift")
    text = "the server's file does not load: `spyweb check` says why"
    note(vitals.server_is_broken, "server", text)

    dead, channels = vitals.dead_messages, ", ".join(vitals.troubled_channels)
    given_up = "messages never arrived and were" if dead > 1 else "message never arrived and was"
    note(dead, "outbox", f"{dead} {given_up} given up: `spyweb outbox` lists them", page="outbox")
    text = f"notification channels have problems ({channels}): `spyweb alerts list` shows them"
    note(channels, "channels", text, timeless=channels)
    is_lost = vitals.heartbeat and vitals.heartbeat.error
    note(is_lost, "heartbeat", "the heartbeat does not arrive: `spyweb health` says why")

    note(_lack_workers(vitals), NO_WORKERS.code, NO_WORKERS.text)
    note(_lacks_backup(vitals), NO_BACKUP.code, NO_BACKUP.text)
    note(vitals.refused_connections, "connections", vitals.refused_connections)
    text = f"only {vitals.descriptors_left} file descriptors are left: raise LimitNOFILE, or `ulimit -n`"
    note(vitals.descriptors_left < SCARCE_DESCRIPTORS, "descriptors", text)
    waiting, most = vitals.pool.waiting, f"at most {vitals.pool.most_own} jobs with `exec` or `isolation` have one"
    text = f"{counted(waiting, 'run waits', 'runs wait')} for a process: {most} at a time"
    note(waiting, "processes", f"{text}, a third of the file descriptors")

    took = format_duration(round(1000 * vitals.store.commit_s))
    text = f"the disk is slow: each commit takes {took} or longer, and writes wait for it"
    note(vitals.store.commit_s > SLOW_COMMIT_S, "slow disk", text)
    is_refused = _was_lately(vitals.storage_error_at_ms, vitals)
    text = "writes of scripts are refused: `spyweb runs` lists the runs, the log has the reason"
    note(is_refused, "storage errors", text, page="runs")
    text = "the event loop stalled: `spyweb health` and the log name the cause"
    note(_was_lately(vitals.loop.last_at_ms, vitals), "loop", text)
    held = len(vitals.held_back)
    text = f"{counted(held, 'job has', 'jobs have')} held up the daemon too often: `spyweb health` says which"
    note(held, "held back", text, page="jobs")
    return [*found, *_cluster_warnings(vitals.cluster)] if vitals.cluster else found


def _cluster_warnings(cluster: ClusterVitals) -> Iterator[HealthProblem]:
    if cluster.unserved:
        text = f"no node is up for jobs of {', '.join(map(pool_words, cluster.unserved))}: they do not run"
        yield problem("nodes", text, page="nodes")
    if cluster.dead:
        text = f"nodes were declared dead: {', '.join(cluster.dead)}"
        yield problem("dead nodes", text, page="nodes")
    if abs(cluster.offset_ms) > CLOCK_OFF_MS:
        text = f"this machine's clock is {format_duration(abs(cluster.offset_ms))} away from the database's"
        yield problem("clock", text, timeless="the clock is wrong")


def is_missing(right: str) -> bool:
    """Return whether a line of the sandbox reports a missing protection."""
    return "not in force" in right or right.startswith("no system-call filter and no Landlock")


def pool_words(pool: str) -> str:
    """Return whose slots a pool has: `node fra`, `labels gpu,big`, `every node`."""
    kind, _, name = pool.partition(":")
    return f"{'labels' if kind == 'label' else kind} {name}" if kind else "every node"


def _was_lately(at_ms: int | None, vitals: Vitals) -> bool:
    return at_ms is not None and vitals.now_ms - at_ms < SHOWN_MS


def health_words(health: Health) -> str:
    """Return in one line whether jobs run on time, with the problems."""
    if health.problems:
        more = len(health.problems) + len(health.warnings) - 1
        first = health.problems[0][:1].upper() + health.problems[0][1:]
        return f"{first}, and {more} more" if more else first
    if not health.warnings:
        return "Jobs run on time"
    if len(health.warnings) == 1:
        return f"Jobs run on time; {health.warnings[0].partition(':')[0]}"
    return f"Jobs run on time; {len(health.warnings)} warnings"


def view_health(vitals: Vitals, states: Iterable[JobState], short_monitors: int = 0, drifting: int = 0) -> Health:
    counts, problems = Counter(states), find_all_problems(vitals)
    warnings = find_warnings(vitals, short_monitors, drifting)
    return copied(
        Health,
        vitals,
        uptime_s=round(vitals.uptime_s, 3),
        status="failing" if problems else "ok",
        problems=[each.text for each in problems],
        workers=vitals.pool.workers,
        worker_deaths=vitals.pool.deaths,
        quarantined={str(job): why for job, why in vitals.pool.quarantined.items()},
        rights=vitals.pool.rights,
        jobs={state.value: counts[state] for state in JobState},
        warnings=[each.text for each in warnings],
        advice=[*problems, *warnings],
    )


FOR_STRANGERS = (
    "status", "problems", "warnings", "version", "uptime_s", "scheduler_lag_ms", "jobs", "worker_deaths",
    "storage_errors",
)  # fmt: skip


def summarize(health: Health) -> dict[str, object]:
    """Return the part for clients without a key: no job names, no paths, no process ids."""
    loop = {name: getattr(health.loop, name) for name in ("stalls", "worst_ms")}
    store = {name: getattr(health.store, name) for name in ("last_commit_ms", "errors", "pending")}
    store["oldest_pending_s"] = round(health.store.oldest_pending_s, 3)
    plain = {name: getattr(health, name) for name in FOR_STRANGERS}
    return {**plain, "workers": len(health.workers), "loop": loop, "store": store}


def view_readiness(vitals: Vitals, *, stage: str, probe: str) -> Readiness:
    """Decide whether a daemon is ready: its parts make progress, and it is neither starting nor stopping.

    `stage` is the reason while the daemon starts or stops; `probe` the error of a test write.
    """
    reasons = [stage] if stage else []
    reasons += [problem.text for problem in find_all_problems(vitals)]
    if probe and not vitals.store.failed:
        reasons.append(probe)
    if not vitals.pool.answering:
        reasons.append("no worker answers")
    return Readiness(ready=not reasons, reasons=reasons)
