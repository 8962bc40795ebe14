"""Change the key of an encrypted database while no daemon has it open."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

from spyweb.model import Durability
from spyweb.store.crypto.sealing import codec_for
from spyweb.store.lock import hold_database
from spyweb.store.marker import Marker
from spyweb.store.sqlite.damage import refuse_missing
from spyweb.store.sqlite.failures import translate_opening
from spyweb.store.sqlite.migrate import load_migrations, refuse_older
from spyweb.store.sqlite.store import connect, refuse_unfit, set_up_writing
from spyweb.store.sqlite.vault import codec_of, purge, rewrite


def rotate_key(path: Path, *, old: bytes | None, new: bytes | None, marker: Marker | None = None) -> bool:
    """Rewrite all values, their history and their events, or none (None: unencrypted values).

    Return whether nothing of their old form is left in the file; if something is, the next opening removes it.  The
    caller holds the lock of the data directory.  Raises a StoreError with one clear line.
    """
    before, after = codec_for(old), codec_for(new)
    refuse_missing(path, marker.folder if marker and marker.found else None)
    try:
        with ExitStack() as opened:
            opened.enter_context(hold_database(path))
            refuse_unfit(path, before, Durability.FULL, marker)
            connection = opened.enter_context(closing(connect(path)))
            refuse_older(connection, path, load_migrations())
            set_up_writing(connection, Durability.FULL)
            rewrite(connection, codec_of(connection, before), after)
            return is_purged(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate_opening(error, path) from error


def is_purged(connection: sqlite3.Connection) -> bool:
    """Return whether the old form is purged.  The values have their new key by now: no failure may hide that."""
    try:
        return purge(connection)
    except sqlite3.Error:
        return False
