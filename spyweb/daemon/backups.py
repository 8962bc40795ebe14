"""Make the backups of `[backup]`, and remove older ones."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event

import structlog
from msgspec import structs

from spyweb.clock import Clock
from spyweb.daemon.build import Daemon
from spyweb.daemon.chores import Chore, do_once
from spyweb.errors import StoreClosed
from spyweb.schedules.cron import LAST_DAY, cron_after
from spyweb.settings.sections import Settings
from spyweb.settings.units import DAY_MS, SECOND_MS
from spyweb.store.access import PRIVATE
from spyweb.store.opening import key_of
from spyweb.store.sqlite.backup import make_backup
from spyweb.store.sqlite.failures import opening
from spyweb.subjects.health.remedies import BACKUP
from spyweb.subjects.health.views import ChoreHealth

log = structlog.get_logger()

LOOK_S = 30.0  # config.toml may have changed
LAST_MS = LAST_DAY * DAY_MS  # of what is never due
NAMES, FORM = f"spyweb-{'[0-9]' * 8}T{'[0-9]' * 6}Z.zip", "spyweb-%Y%m%dT%H%M%SZ.zip"


async def keep_backups(daemon: Daemon) -> None:
    """Make a backup at each due time, and at once where one passed without: the name of a backup says when it was made.

    After a failure the next due time is waited for, or the next start of the daemon.
    """
    clock, reloader = daemon.runtime.clock, daemon.reloader
    found, tried_ms = ChoreHealth(name=BACKUP, every_s=0), 0
    while True:
        settings = replace(daemon.runtime.settings, backup=reloader.settings.backup)
        if not settings.backup.cron:
            daemon.chores.pop(BACKUP, None)
            await clock.sleep(LOOK_S)
            continue
        now_ms, next_due = clock.now_ms(), partial(cron_after, settings.backup.cron, settings.daemon.timezone)
        try:
            made_ms = await asyncio.to_thread(newest_until, settings.root / settings.backup.dir, now_ms)
            due_ms = next_due(max(made_ms, tried_ms)) or LAST_MS
            every_s = ((next_due(due_ms) or LAST_MS) - due_ms) / SECOND_MS
        except ValueError as error:
            daemon.chores[BACKUP] = structs.replace(found, error=f"[backup] cron: {error}")
            await clock.sleep(LOOK_S)
            continue
        last_ms = found.last_at_ms or made_ms or None
        daemon.chores[BACKUP] = structs.replace(found, every_s=every_s, last_at_ms=last_ms, next_at_ms=due_ms)
        if due_ms > now_ms:
            await clock.sleep(min(LOOK_S, (due_ms - now_ms) / SECOND_MS))
            continue
        tried_ms = now_ms
        found = await do_once(Chore(BACKUP, every_s, partial(back_up, settings, clock)), clock)


async def back_up(settings: Settings, clock: Clock) -> None:
    """Make a backup in a thread, which ends soon after this is cancelled."""
    is_over = Event()

    def advance(_: int) -> None:
        if is_over.is_set():
            raise StoreClosed

    def work() -> None:
        folder = settings.root / settings.backup.dir
        with opening(folder):
            folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            for left in folder.glob(f".{NAMES}.unfinished"):
                shutil.rmtree(left, ignore_errors=True)
            file = folder / datetime.fromtimestamp(clock.now_ms() / SECOND_MS, UTC).strftime(FORM)
            made = make_backup(file, settings, key_of(settings), clock, advance, advance)
            for older in sorted(folder.glob(NAMES))[: -settings.backup.keep]:
                older.unlink()
        log.info("a backup was made", file=str(file), bytes=sum(saved.bytes for saved in made.files))

    try:
        await asyncio.to_thread(work)
    finally:
        is_over.set()


def newest_until(folder: Path, now_ms: int) -> int:
    """Return when the newest backup was made; one of a clock that was ahead does not count."""
    now = datetime.fromtimestamp(now_ms / SECOND_MS, UTC).strftime(FORM)
    names = [path.name for path in folder.glob(NAMES) if path.name <= now]
    return round(datetime.strptime(max(names), FORM).replace(tzinfo=UTC).timestamp()) * SECOND_MS if names else 0
