"""The errors that spyweb raises on purpose.  Internal errors are not in this tree: they are shown with a traceback.

The tree is drawn in docs/reference/errors.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


def legible(path: str | os.PathLike[str]) -> str:
    """Return a path as text for people and JSON, with bytes that are not UTF-8 as \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class SpywebError(Exception):
    """The base of all errors that spyweb raises on purpose."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])


class ExitCode(IntEnum):
    """The exit codes of spyweb's commands."""

    OK = 0
    FAILED = 1  # a job, test or check failed
    USAGE = 2  # usage, lock, port or permission
    INTERRUPTED = 130  # Ctrl-C, as shells count it
    UNREAD = 141  # the output was closed: SIGPIPE, as shells count it


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem: its place, the reason, and the expected form."""

    file: str
    line: int | None
    key: str | None
    reason: str
    is_warning: bool = False  # nothing is refused for it

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.key}: {self.reason}" if self.key else f"{where}: {self.reason}"

    def place(self) -> tuple[str, int]:
        """Return what problems are sorted by: the file and the line."""
        return self.file, self.line or 0


class ConfigError(SpywebError):
    """A job file or a setting is wrong."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


class ScriptError(SpywebError):
    """A Lua file is wrong."""

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        super().__init__(str(Problem(file, line, None, reason)))
        self.problem = Problem(file, line, None, reason)


class OpError(SpywebError):
    """An op was called wrongly, or refused."""

    def __init__(self, message: str | None = None, *, value: object = None) -> None:
        super().__init__(message)
        self.value = value  # raised in the script instead of the text, unless it is None


class FetchError(SpywebError):
    """The network or the server failed."""

    def __init__(self, kind: str, message: str, *, url: str = "", proxy: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.url = url
        self.proxy = proxy


class NotPermitted(FetchError):
    """The policy of the job does not permit this host."""

    def __init__(self, message: str) -> None:
        super().__init__("permission", message)
        self.is_redirect = False  # a redirect has led there


class ExtractionError(SpywebError):
    """No items could be extracted from a page."""


class CommandError(SpywebError):
    """A command could not be run, or was over its timeout."""


class StoreError(SpywebError):
    """The store refused."""


class StoreClosed(StoreError):
    """The store is closed."""


# SQLite's error texts that an EIO may have caused.
MAYBE_UNREAD = ("disk I/O error", "unable to get the page", "disk image is malformed")


class StoreCorrupt(StoreError):
    """The database is damaged."""

    def __init__(self, path: Path, reason: str) -> None:
        what, first = "the database is damaged", ""
        if any(words in reason for words in MAYBE_UNREAD):
            what, first = f"{what}, or the disk can't be read", "restart first; if that does not help, "
        super().__init__(f"{path}: {what} ({reason}); {first}`spyweb start --repair` moves it aside")
        self.path = path
        self.reason = reason


class StoreMoved(StoreError):
    """The database, or its log, was moved or replaced since it was opened: further writes would be lost."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(f"{path}: was removed or replaced while spyweb uses it: put it back, or restart spyweb")
        self.path = path


class StoreUnreachable(StoreError):
    """PostgreSQL does not answer: it may help to try again."""


class StoreAbsent(StoreError):
    """There is no database yet."""


class StoreFenced(StoreError):
    """The other nodes have declared this one dead, or its database went back: it must join anew."""


class StoreIncomplete(StoreError):
    """A part of the database is missing."""

    def __init__(self, path: Path, reason: str, *, is_gone: bool) -> None:
        how = "moves the rest aside and creates a new one" if is_gone else "continues without the missing part"
        super().__init__(f"{path}: {reason}: put it back; or `spyweb start --repair` {how}")
        self.path = path
        self.is_gone = is_gone  # the database itself; else some of the last commits


class CursorMoved(StoreError):
    """A job's cursor on record is not the one that a write expected."""

    def __init__(self, job: str, found: object) -> None:
        super().__init__(f"the cursor of {job} is not where it was expected")
        self.job = job
        self.found = found  # the cursor on record; None: there is none


class TooLarge(StoreError):
    """A caller asked for more than it can hold."""


class StoreNewer(StoreError):
    """The database was written by a newer spyweb."""


class LockHeld(SpywebError):
    """Another spyweb has this data directory, or this database."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is in use by {holder}")
        self.path = path
        self.holder = holder


class NoAccess(SpywebError):
    """This user may not open a file."""


STORE_REFUSED = (StoreError, NoAccess)  # caught by code that repeats a write until the store accepts it


class PoolError(SpywebError):
    """No worker was available."""


class KeyReused(SpywebError):
    """The idempotency key of a request was used for another request."""


class Refused(SpywebError):
    """The request makes no sense in the present state."""


class Absent(Refused):
    """The request names something that does not exist, or no longer."""
