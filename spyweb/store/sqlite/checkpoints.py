"""Copies the log into the database during commits, on a separate thread and connection.

SQLite would do it in the commit that makes the log too long, and answer no op until many scattered pages are written
and synced.  Here commits go on meanwhile.  The log is restarted once all of it is copied at a moment when nothing is
being added; a writer that never pauses does that itself (`wal_autocheckpoint`), and then little is left to copy.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from asyncio import Future
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import structlog

from spyweb.errors import StoreError
from spyweb.store.sqlite.damage import FileIdentity

log = structlog.get_logger()

ROWS = 2000  # changed between two checkpoints; scattered ones each add a whole page to the log
PAGES = 5000  # in the log that have not been copied: a few rows of large values are enough
BATCHES = 8  # between two checks of the log's size, since each check releases the interpreter's lock

_sync = getattr(os, "fdatasync", os.fsync)  # as SQLite's own


class Checkpoints:
    """Checkpoints an open database.  Thread and connection are made for the first checkpoint: few daemons need one."""

    def __init__(self, path: Path, files: FileIdentity, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._files = files
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._copied = 0  # pages of the log, by the checkpoints so far
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None
        self._rows = 0  # since the last one began
        self._batches = 0  # since the last look at the log
        self._is_stopping = False

    def note(self, rows: int) -> None:
        """Count the rows that a commit has changed."""
        self._rows += rows
        self._batches += 1
        is_free = (self._under_way is None or self._under_way.done()) and not self._is_stopping
        if is_free and (self._rows >= ROWS or self._is_long()):
            self._rows, self._copied = 0, self._files.pages()
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "checkpoints")
            with suppress(RuntimeError):  # no thread can be started: the writer checkpoints then
                self._under_way = asyncio.get_running_loop().run_in_executor(self._thread, self._copy)

    async def stop(self) -> None:
        """Stop checkpointing, before the connections are closed: the last one closed copies the rest of the log."""
        self._is_stopping = True
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        if self._thread is not None:
            if self._connection is not None:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
            self._thread.shutdown()
            self._thread = None

    def close(self) -> None:
        """Close the files after all connections, since closing a file releases all locks of this process on it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._files.close()

    def _is_long(self) -> bool:
        """Return whether a large part of the log has not been copied."""
        if self._batches < BATCHES:
            return False
        self._batches = 0
        pages = self._files.pages()
        if pages < self._copied:  # the log has been restarted
            self._copied = 0
        return pages - self._copied >= PAGES

    def _copy(self) -> None:
        """Copy the log, on the thread; an error here will also meet the writer, which reports it."""
        try:
            if self._connection is None:
                if moved := self._files.trouble():  # this log does not belong to the file that is there now
                    raise moved
                self._connection = self._connect()
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            _sync(self._file)
        except (sqlite3.Error, OSError, StoreError) as error:
            log.debug("a checkpoint was left to the writer", path=str(self._path), error=str(error))
