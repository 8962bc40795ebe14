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
from spyweb.store.sqlite.backup import UNFINISHED, make_backup
from spyweb.store.sqlite.failures import opening
from spyweb.subjects.health.remedies import BACKUP
from spyweb.subjects.health.views import ChoreHealth

log = structlog.get_logger()

LOOK_S = 30.0  # config.toml may have changed
LAST_MS = LAST_DAY * DAY_MS  # of what is never due
NAMES, FORM = f"spyweb-{'[0-9]' * 8}T{'[0-9]' * 6}Z.zip", "spyweb-%Y%m%dT%H%M%SZ.zip"


async def keep_backups(daemon: Daemon) -> None:
    """Make a backup at each due time, and at once where one has passed since the last one, or the last attempt."""
    clock, found = daemon.runtime.clock, ChoreHealth(name=BACKUP, every_s=0)
    while True:
        settings, now_ms = replace(daemon.runtime.settings, backup=daemon.reloader.settings.backup), clock.now_ms()
        next_due, wait_s = partial(cron_after, settings.backup.cron, settings.daemon.timezone), LOOK_S
        try:
            made = await asyncio.to_thread(list_made, settings.root / settings.backup.dir)
            last_ms = max((ms for ms in (*made, found.last_at_ms or 0) if ms <= now_ms), default=0)
            due_ms = next_due(last_ms) or LAST_MS
            every_s = ((next_due(due_ms) or LAST_MS) - due_ms) / SECOND_MS
            shown = structs.replace(found, every_s=every_s, last_at_ms=last_ms or None, next_at_ms=due_ms)
            wait_s = min(LOOK_S, (due_ms - now_ms) / SECOND_MS)
        except (ValueError, OSError) as error:  # of a wrong cron, or of a disk that is away
            shown = structs.replace(found, error=f"[backup]: {error}")
        if settings.backup.cron:
            daemon.chores[BACKUP] = shown
            if wait_s <= 0:
                found = await do_once(Chore(BACKUP, shown.every_s, partial(back_up, settings, clock)), clock)
        else:
            daemon.chores.pop(BACKUP, None)
        await clock.sleep(wait_s)


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
            for left in folder.glob(f".{NAMES}{UNFINISHED}*"):
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


def list_made(folder: Path) -> list[int]:
    """Return when each backup was made, by its name."""
    moments = (datetime.strptime(path.name, FORM).replace(tzinfo=UTC) for path in folder.glob(NAMES))
    return [round(moment.timestamp()) * SECOND_MS for moment in moments]
