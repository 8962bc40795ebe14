"""Change the key of an encrypted database while no daemon has it open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from spyweb.model import Durability
from spyweb.store.crypto.sealing import codec_for
from spyweb.store.lock import hold_database
from spyweb.store.sqlite.damage import check
from spyweb.store.sqlite.failures import translate
from spyweb.store.sqlite.integrity import refuse_incomplete
from spyweb.store.sqlite.migrate import load_migrations, refuse_newer, refuse_older
from spyweb.store.sqlite.store import connect, set_up_writing
from spyweb.store.sqlite.vault import check_key, codec_of, purge, rewrite


def rotate_key(path: Path, *, old: bytes | None, new: bytes | None) -> bool:
    """Rewrite all values, their history and their events, or none (None: unencrypted values).

    Return whether nothing of their old form is left in the file; if something is, the next opening removes it.  The
    caller holds the lock of the data directory.  Raises a StoreError with one clear line.
    """
    before, after = codec_for(old), codec_for(new)
    refuse_incomplete(path, Durability.FULL)
    try:
        with closing(hold_database(path)), closing(connect(path)) as connection:
            check(connection, path, killed=False)
            refuse_newer(connection, path, load_migrations())
            refuse_older(connection, path, load_migrations())
            check_key(connection, path, before)
            set_up_writing(connection, Durability.FULL)
            rewrite(connection, codec_of(connection, before), after)
            return is_purged(connection)
    except sqlite3.Error as error:
        raise translate(error, path) from error


def is_purged(connection: sqlite3.Connection) -> bool:
    """Return whether the old form is purged.  The values have their new key by now: no failure may hide that."""
    try:
        return purge(connection)
    except sqlite3.Error:
        return False
