"""Translate SQLite's errors for the rest of spyweb, here and nowhere else; another engine's come translated."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spyweb.errors import SpywebError, StoreCorrupt, StoreError
from spyweb.store import access

BUSY_TIMEOUT_MS = 5000  # how long to wait for another process that writes

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
TORN = {sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}  # extended codes; the latter is an EIO too
ILLEGIBLE = ("no such ", "Could not decode to UTF-8")  # SQLite's words: spyweb asks for what it has stored
OUT_OF_MEMORY = "out of memory"
FAULTS = (sqlite3.Error, MemoryError)  # what SQLite may raise: the module has no class of its own for SQLITE_NOMEM
IN_USE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
FORBIDDEN = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}


class ForeignError(sqlite3.OperationalError):
    """An error of another engine, with the one that the rest of spyweb gets."""

    def __init__(self, told: StoreError) -> None:
        super().__init__(str(told))
        self.told = told


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; SQLITE_ERROR if the sqlite3 module itself refused."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def translate(error: Exception, path: Path | str) -> Exception:
    """Return the spyweb error for one of SQLite's, or for a lack of memory; any other error is returned unchanged."""
    if isinstance(error, MemoryError):
        error.__traceback__ = None  # it refers to the large values
        return StoreError(f"{path}: {OUT_OF_MEMORY}")
    if isinstance(error, ForeignError):
        return type(error.told)(*error.told.args)  # several callers get it
    path = Path(path)
    if isinstance(error, UnicodeDecodeError):  # also of SQLite's own words about a schema that it can't read
        return StoreCorrupt(path, str(error))
    if not isinstance(error, sqlite3.Error):
        return error
    translated = explain(error, path)
    translated.__cause__ = error
    return translated


@contextmanager
def opening(path: Path | str) -> Iterator[None]:
    """Translate the errors that opening or checking a database meets: one of SQLite's that is unknown is damage."""
    try:
        yield
    except OSError as error:
        raise access.explain(error, Path(path)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        translated = translate(error, path)
        is_unknown = type(translated) is StoreError and isinstance(error, sqlite3.Error) and primary_code(error) == 1
        raise (StoreCorrupt(Path(path), str(error)) if is_unknown else translated) from error


def explain(error: sqlite3.Error, path: Path) -> SpywebError:
    code = primary_code(error)
    is_damaged = code in DAMAGED or getattr(error, "sqlite_errorcode", 0) in TORN or str(error).startswith(ILLEGIBLE)
    if is_damaged:
        return StoreCorrupt(path, str(error))
    if code in IN_USE:
        return StoreError(f"{path}: another process has locked the database (waited {BUSY_TIMEOUT_MS / 1000:g} s)")
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"{path}: no room left on the disk, or the database has reached its limit")
    if code in FORBIDDEN:
        return access.no_access(path) or StoreError(f"{path}: {error}")
    return StoreError(f"{path}: {error}")
