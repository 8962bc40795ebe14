"""Do the periodic chores of a daemon: one table, their boundary, and the code of those that are more than one call."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb import descriptors
from spyweb.clock import Clock
from spyweb.daemon.build import Daemon
from spyweb.errors import STORE_REFUSED, LockHeld, NoAccess, StoreClosed
from spyweb.logs.output import tell_refusal
from spyweb.outbox.sender import OutboxSender
from spyweb.schedules.cron import LAST_DAY, cron_after
from spyweb.settings.sections import BackupSettings, Settings
from spyweb.settings.units import DAY_MS, HOUR_MS, SECOND_MS
from spyweb.stalls import Work, work_for
from spyweb.store.access import PRIVATE
from spyweb.store.lock import Lock
from spyweb.store.opening import key_of
from spyweb.store.sqlite.backup import UNFINISHED, make_backup, remove
from spyweb.store.sqlite.failures import opening
from spyweb.store.sqlite.store import Store
from spyweb.subjects.drift.checks import DriftChecks
from spyweb.subjects.drift.service import DriftService
from spyweb.subjects.health.remedies import BACKUP
from spyweb.subjects.health.views import SCARCE_DESCRIPTORS, ChoreHealth, find_problems
from spyweb.subjects.nodes.service import NodesService
from spyweb.subjects.status.service import StatusService
from spyweb.web.access.keys import AccessService
from spyweb.web.serve import PrivateSocket
from spyweb.web.tls import ServerCertificate

log = structlog.get_logger()

STATUS_S = 10.0
RESCAN_S = 60.0
DRIFT_S = 5.0
HEARTBEAT_S = 5.0
CERTIFICATE_S = 30.0
PRUNE_S = 600.0
LEAP_MS = HOUR_MS  # forward; less is a clock that is set right
BELIEVED_AFTER_MS = DAY_MS
INCIDENTS_KEPT_MS = 90 * DAY_MS  # that are over
NODES_KEPT_MS = 30 * DAY_MS  # that have ended
KEYS_KEPT_MS = 2 * DAY_MS  # of notices: a day of any time zone is over by then
BACKUP_LOOK_S = 30.0  # config.toml may have changed
LAST_MS = LAST_DAY * DAY_MS  # when a backup is due that is never due
NAMES, FORM = f"spyweb-{'[0-9]' * 8}T{'[0-9]' * 6}Z.zip", "spyweb-%Y%m%dT%H%M%SZ.zip"  # of backups
DEAD_KEPT_MS = 7 * DAY_MS  # messages that were given up, kept for people who search for them


class Chore(Struct, frozen=True):
    """A periodic chore of the daemon."""

    name: str
    every_s: float
    do: Callable[[], Awaitable[object]]
    is_common: bool = False  # what it does is done once for all nodes, by the chief


async def repeat(daemon: Daemon, chore: Chore) -> None:
    """Do a chore again and again, so long after the time before, first after one interval."""
    work_for(Work(f"chore '{chore.name}'"))
    clock, ownership = daemon.runtime.clock, daemon.runtime.live.ownership
    found = ChoreHealth(name=chore.name, every_s=chore.every_s)
    while True:
        daemon.chores[chore.name] = replace(found, next_at_ms=clock.now_ms() + round(chore.every_s * 1000))
        await clock.sleep(chore.every_s)
        daemon.chores[chore.name] = found  # it is under way
        if ownership.is_chief or not chore.is_common:
            found = await do_once(chore, clock)


async def do_once(chore: Chore, clock: Clock) -> ChoreHealth:
    """Do a chore, and never raise: this is the boundary of the daemon's background work."""
    began_ms, began, problem = clock.now_ms(), clock.monotonic(), ""
    try:
        await chore.do()
    except STORE_REFUSED as error:  # a full or locked disk
        problem = str(error) or type(error).__name__
        tell_refusal("put off", error, chore=chore.name, by_s=chore.every_s)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        log.exception("internal error in a chore", chore=chore.name)
    return ChoreHealth(
        name=chore.name,
        every_s=chore.every_s,
        last_at_ms=began_ms,
        last_took_ms=round((clock.monotonic() - began) * 1000),
        error=problem,
    )


def list_chores(
    daemon: Daemon, lock: Lock, private: PrivateSocket, certificate: ServerCertificate | None
) -> list[Chore]:
    """List the periodic chores of a daemon; chores of a single part are in that part."""
    runtime, reloader, notifier = daemon.runtime, daemon.reloader, daemon.notifier
    store, live = runtime.store, runtime.live
    ended_ms = [job.last.ended_ms for job in live if job.last and job.last.ended_ms]
    steady = SteadyTime(runtime.clock, max(ended_ms, default=None))
    progress = ProgressReport(daemon)
    scarcity = DescriptorWatch()
    drift = DriftChecks(live=live, runner=runtime.runner, drift=daemon.services[DriftService], clock=runtime.clock)

    async def rescan() -> None:
        reloader.wake()

    async def renew() -> None:
        if certificate:
            await asyncio.to_thread(certificate.renew)

    async def tidy() -> None:
        daemon.services[AccessService].sweep()
        await asyncio.to_thread(runtime.world.artifacts.prune, reloader.settings.runs.keep)

    async def cut() -> None:
        await prune(store, runtime.outbox_sender, reloader.settings, steady.now_ms())

    progress_s = min(notifier.watchdog_interval_s or STATUS_S, STATUS_S)
    sweep_s = runtime.settings.state.sweep_interval_ms / 1000
    return [
        # systemd shows the status, and restarts a daemon that makes no progress
        Chore("progress", progress_s, progress.tell),
        # a daemon without free descriptors can open neither files nor connections
        Chore("descriptors", STATUS_S, scarcity.look),
        # somebody may have removed them: a second daemon could start, and no command would find this one
        Chore("lock and socket", STATUS_S, partial(restore_files, lock, private)),
        # it is renewed every few months, by programs that know nothing of the daemon
        Chore("certificate", CERTIFICATE_S, renew),
        # some file systems report no changes
        Chore("rescan", RESCAN_S, rescan),
        # jobs with `drift` are compared with files that others may have changed
        Chore("drift", DRIFT_S, drift.check_due),
        # a monitoring service notices when the pings stop
        Chore("heartbeat", HEARTBEAT_S, daemon.heartbeat.look),
        # a copy of the status page, which other machines may serve
        Chore("status page", STATUS_S, daemon.services[StatusService].export),
        # nodes of the cluster that were declared dead, for health
        *([Chore("nodes", STATUS_S, daemon.services[NodesService].look)] if daemon.node else []),
        # expired entries are invisible already: the sweep frees their space, and announces `expired`
        Chore("sweep", sweep_s, store.values.sweep, is_common=True),
        # results wait until they are counted: the more do, the longer take questions about uptime
        Chore("uptime", STATUS_S, lambda: store.uptime.prune(steady.now_ms()), is_common=True),
        # the history, the records and the dead messages must not grow for ever
        Chore("prune", PRUNE_S, cut, is_common=True),
        # nor the artifacts on this machine, and sessions whose time is over
        Chore("tidy", PRUNE_S, tidy),
    ]


class ProgressReport:
    """Reports the status to systemd, and feeds its watchdog while the scheduler and the writer make progress."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._logged: list[str] = []

    async def tell(self) -> None:
        daemon, notifier = self._daemon, self._daemon.notifier
        is_away = daemon.node and daemon.node.trouble  # PostgreSQL, which a restart of this daemon does not bring back
        problems = [] if is_away else find_problems(daemon.scheduler.lag_ms, daemon.runtime.store.stats())
        if problems and problems != self._logged:
            log.error("no progress", problems=problems)
        self._logged = problems
        if problems:
            notifier.status("; ".join(problems))
        else:
            notifier.watchdog()
            notifier.status(status_line(daemon))


def status_line(daemon: Daemon) -> str:
    live = daemon.runtime.live
    line = f"{len(live)} jobs, {len(live.running())} running"
    return f"{line}; {daemon.node.status}" if daemon.node else line


class DescriptorWatch:
    """Warns once when few file descriptors are left."""

    _was_scarce = False

    async def look(self) -> None:
        left = descriptors.left()
        is_scarce = left < SCARCE_DESCRIPTORS
        if is_scarce and not self._was_scarce:
            log.warning("hardly any file descriptors are left", left=left, allowed=descriptors.allowed())
        self._was_scarce = is_scarce


async def restore_files(lock: Lock, private: PrivateSocket) -> None:
    """Make the lock file and the socket again if somebody has removed them."""
    try:
        if lock.restore():
            log.warning("the lock file was removed, and is made again")
        if await private.restore():
            log.warning("the socket was removed, and is made again", path=str(private.path))
    except (LockHeld, NoAccess, OSError) as error:
        log.error("the lock file or the socket was removed, and can't be made again", reason=str(error))


class SteadyTime:
    """Returns the clock's time, but ignores a leap forward until it has lasted for a day.

    Otherwise a machine whose clock is months ahead for a while, after a start without a battery or with a wrong time
    server, would delete history that can't be restored.
    """

    def __init__(self, clock: Clock, known_ms: int | None = None) -> None:
        """Take `known_ms`, the newest time that an earlier daemon recorded, as the beginning."""
        self._clock = clock
        self._base_ms = clock.now_ms() if known_ms is None else known_ms  # the time at `_since`
        self._since = clock.monotonic()  # by the monotonic clock
        self._ahead_since: float | None = None

    def now_ms(self) -> int:
        now_ms, elapsed = self._clock.now_ms(), self._clock.monotonic()
        steady_ms = self._base_ms + round((elapsed - self._since) * 1000)
        if now_ms - steady_ms > LEAP_MS:
            if self._ahead_since is None:
                self._ahead_since = elapsed
            if (elapsed - self._ahead_since) * 1000 < BELIEVED_AFTER_MS:
                return steady_ms
        self._base_ms, self._since, self._ahead_since = now_ms, elapsed, None
        return now_ms


async def prune(store: Store, outbox_sender: OutboxSender, settings: Settings, now_ms: int) -> None:
    """Delete the history, records, incidents and given-up messages that are over their limits."""
    await store.tasks.prune(keep=settings.runs.keep_tasks)
    await store.runs.prune(keep=settings.runs.keep, older_than_ms=now_ms - settings.runs.keep_for_ms)
    kept_for_ms = settings.records.keep_for_ms
    await store.records.prune(
        keep=settings.records.keep,
        older_than_ms=None if kept_for_ms is None else now_ms - kept_for_ms,
        unseen_since_ms=now_ms - settings.records.seen_for_ms,
    )
    await store.incidents.prune(older_than_ms=now_ms - INCIDENTS_KEPT_MS)
    if store.nodes:
        await store.nodes.prune(now_ms - NODES_KEPT_MS)
    await store.outbox.prune_notices(older_than_ms=now_ms - KEYS_KEPT_MS)
    await outbox_sender.prune(now_ms - DEAD_KEPT_MS)


async def keep_backups(daemon: Daemon) -> None:
    """Make a backup at each due time, and at once where one has passed since the last one, or the last attempt."""
    clock, found = daemon.runtime.clock, ChoreHealth(name=BACKUP, every_s=0)
    while True:
        now_ms, backup, root = clock.now_ms(), daemon.reloader.settings.backup, daemon.runtime.settings.root
        next_due, wait_s = partial(cron_after, backup.cron, daemon.runtime.settings.daemon.timezone), BACKUP_LOOK_S
        try:
            made = await asyncio.to_thread(list_made, root / backup.dir)
            last_ms = max((ms for ms in (*made, found.last_at_ms or 0) if ms <= now_ms), default=0)
            due_ms = next_due(last_ms) or LAST_MS
            every_s = ((next_due(due_ms) or LAST_MS) - due_ms) / SECOND_MS
            shown = replace(found, every_s=every_s, last_at_ms=last_ms or None, next_at_ms=due_ms)
            wait_s = min(BACKUP_LOOK_S, (due_ms - now_ms) / SECOND_MS)
        except (ValueError, OSError) as error:  # of a wrong cron, or of a disk that is away
            shown = replace(found, error=f"[backup]: {error}")
        if backup.cron:
            daemon.chores[BACKUP] = shown
            if wait_s <= 0:
                make = partial(back_up, daemon.runtime.settings, backup, clock)
                found = await do_once(Chore(BACKUP, shown.every_s, make), clock)
        else:
            daemon.chores.pop(BACKUP, None)
        await clock.sleep(wait_s)


async def back_up(settings: Settings, backup: BackupSettings, clock: Clock) -> None:
    """Make a backup in a thread, which ends soon after this is cancelled."""
    task = asyncio.current_task()

    def advance(_: int) -> None:
        if task and task.cancelling():
            raise StoreClosed

    def work() -> None:
        folder = settings.root / backup.dir
        with opening(folder):
            folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            for left in folder.glob(f".{NAMES}{UNFINISHED}"):
                shutil.rmtree(left, ignore_errors=True)
            file = folder / datetime.fromtimestamp(clock.now_ms() / SECOND_MS, UTC).strftime(FORM)
            make_backup(file, settings, key_of(settings), clock, advance, advance)
            for older in sorted(folder.glob(NAMES))[: -backup.keep]:
                remove(older)
        log.info("a backup was made", file=str(file), bytes=file.stat().st_size)

    await asyncio.to_thread(work)


def list_made(folder: Path) -> list[int]:
    """Return when each backup was made, by its name."""
    moments = (datetime.strptime(path.name, FORM).replace(tzinfo=UTC) for path in folder.glob(NAMES))
    return [round(moment.timestamp()) * SECOND_MS for moment in moments]
