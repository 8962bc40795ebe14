"""Open the project's databases; move aside one that is damaged, where that was asked for."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from spyweb.clock import Clock
from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.settings import Settings
from spyweb.settings.sections import USER_DB
from spyweb.store.encryption import find_key
from spyweb.store.marker import Marker
from spyweb.store.sqlite.damage import copy_log_aside, move_aside, refuse_missing, size_of
from spyweb.store.sqlite.store import Store, open_any, refuse_unsound
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.views import Engine

log = structlog.get_logger()


async def open_or_repair(settings: Settings, clock: Clock, marker: Marker, *, repair: bool) -> Store:
    """Open the store.  Raises StoreCorrupt or StoreIncomplete where it can't be used and `repair` is not asked for."""
    opened = marker.found.open if marker.found else None
    if opened:
        why = "the machine was started anew" if marker.was_machine_down else "it was killed, or it crashed"
        log.warning("the last spyweb ended without closing the database", pid=opened.pid, since=opened.since, why=why)
    before = ""
    while True:
        try:
            return await open_configured(settings, clock, marker)
        except (StoreCorrupt, StoreIncomplete) as error:
            if not repair:
                raise
            if str(error) == before:  # twice: no passing error of the disk
                put_aside(error, marker)
            before = str(error)


def put_aside(error: StoreCorrupt | StoreIncomplete, marker: Marker) -> None:
    """Move a damaged database aside, and forget what is known of it, so that nobody is asked about it again.

    One that lacks its last commits goes on; SQLite drops what it can't read of the log, so that is copied.
    """
    if isinstance(error, StoreIncomplete) and not error.is_gone:
        copy = copy_log_aside(error.path)
        log.error("the database goes on without what is missing", reason=str(error), log=str(copy) if copy else None)
    else:
        aside = move_aside(error.path)
        log.error("the damaged database is moved aside, a new one begins", reason=str(error), now=str(aside))
    marker.forget()


async def open_configured(settings: Settings, clock: Clock, marker: Marker) -> Store:
    store, durability = settings.store, settings.store.durability
    is_new = not store.is_memory and not size_of(store.path)
    if not store.is_memory:
        refuse_missing(store.path, marker.folder if marker.found else None)
        refuse_unsound(settings.daemon.data_dir / USER_DB, marker.folder if marker.has_user_db else None)
    opened = await open_any(
        store.url,
        clock=clock,
        durability=durability,
        key=store_key(settings),
        history=settings.state.history,
        marker=marker,
    )
    if is_new:
        log.info("a new database begins", path=str(store.path))
    return opened


def store_key(settings: Settings) -> bytes | None:
    """Return the key that values are encrypted with."""
    key_file = settings.store.key_file
    return find_key(key_file, settings.root, os.environ) if key_file else None


def note_user_db(settings: Settings, marker: Marker) -> None:
    """Note in the marker that scripts have tables of their own, if they have."""
    if not settings.store.is_memory and size_of(settings.daemon.data_dir / USER_DB):
        marker.note_user_db()


def user_db_opening(stack: AsyncExitStack, settings: Settings) -> Opening:
    """Return how scripts' own tables are opened: beside the store, or for one in memory in a temporary folder."""
    store, durability = settings.store, settings.store.durability
    if store.is_memory:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="spyweb-")))
        return Opening(path=folder / USER_DB, engine=None, durability=durability)
    engine = Engine(path=store.path, key=store_key(settings))
    return Opening(path=settings.daemon.data_dir / USER_DB, engine=engine, durability=durability)
