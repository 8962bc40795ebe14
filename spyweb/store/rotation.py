"""Another key for an encrypted database, while no daemon has it open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from spyweb.store.damage import check
from spyweb.store.failures import translate
from spyweb.store.migrate import load_migrations, refuse_newer, refuse_older
from spyweb.store.protocol import Durability
from spyweb.store.sealing import codec_for
from spyweb.store.sqlite import connect, set_up_writing
from spyweb.store.vault import check_key, rewrite


def rotate_key(path: Path, *, old: bytes | None, new: bytes | None) -> None:
    """Rewrite all values, their history and their events, or none (None: values that are not encrypted).

    The caller holds the lock of the data directory.  Raises a StoreError with one clear line.
    """
    before, after = codec_for(old), codec_for(new)
    try:
        with closing(connect(path)) as connection:
            check(connection, path, killed=False)
            refuse_newer(connection, path, load_migrations())
            refuse_older(connection, path, load_migrations())
            check_key(connection, path, before)
            set_up_writing(connection, Durability.FULL)
            rewrite(connection, before, after)
    except sqlite3.Error as error:
        raise translate(error, path) from error
