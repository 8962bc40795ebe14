"""Translate SQLite's errors for the rest of spyweb, here and nowhere else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from spyweb.errors import SpywebError, StoreCorrupt, StoreError
from spyweb.store.access import no_access

BUSY_TIMEOUT_MS = 5000  # how long to wait for another process that writes

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
TORN = {sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}  # extended codes: a file shorter than it was
OUT_OF_MEMORY = "out of memory"
FAULTS = (sqlite3.Error, MemoryError)  # what SQLite may raise: the module has no class of its own for SQLITE_NOMEM
IN_USE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
FORBIDDEN = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; SQLITE_ERROR if the sqlite3 module itself refused."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def translate(error: Exception, path: Path) -> Exception:
    """Return the spyweb error for one of SQLite's, or for a lack of memory; any other error is returned unchanged."""
    if isinstance(error, MemoryError):
        error.__traceback__ = None  # it refers to the large values
        return StoreError(f"{path}: {OUT_OF_MEMORY}")
    if not isinstance(error, sqlite3.Error):
        return error
    translated = explain(error, path)
    translated.__cause__ = error
    return translated


def explain(error: sqlite3.Error, path: Path) -> SpywebError:
    code = primary_code(error)
    if code in DAMAGED or getattr(error, "sqlite_errorcode", 0) in TORN:
        return StoreCorrupt(path, str(error))
    if code in IN_USE:
        return StoreError(f"{path}: another process has locked the database (waited {BUSY_TIMEOUT_MS / 1000:g} s)")
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"{path}: no room left on the disk, or the database has reached its limit")
    if code in FORBIDDEN:
        return no_access(path) or StoreError(f"{path}: {error}")
    return StoreError(f"{path}: {error}")
