"""Write each job's hooks.log: stamped lines, in batches, by a thread, so that no run ever waits for the disk.

The logs of the project's own server, which have other names, are written in the same way.

`write` never blocks and never raises.  Lines that a slow disk can't store in time are dropped, and a line says how
many.  If a folder can't be written to, its lines are lost, one warning is logged, and the next line is tried again.
"""

from __future__ import annotations

import asyncio
import os
import stat
from asyncio import Event, Future, TaskGroup
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import structlog
from msgspec import Struct, field

from spyweb.clock import Clock, Handle
from spyweb.files import APPEND, MODE, Forbidden, open_folder, resolve, write_whole
from spyweb.logs.output import stamp
from spyweb.logs.reading import KEPT, last_lines

MAX_BYTES = 10 * (1 << 20)  # of one file


def append(root: Path, folder: str, name: str, data: bytes) -> None:
    """Append the data to root/folder/name, making a missing folder.

    Raises Forbidden for a folder that leads out of the root, and OSError, and then adds nothing.
    """
    place = open_folder(resolve(root, folder), make=0o777)
    try:
        file = _open_file(place, name)
        try:
            size = os.fstat(file).st_size
            if size > 0 and size + len(data) > MAX_BYTES:
                os.close(file)
                file = -1
                names = [name, *(f"{name}.{number}" for number in range(1, KEPT + 1))]
                for newer, older in reversed(list(pairwise(names))):
                    with suppress(FileNotFoundError):
                        os.rename(newer, older, src_dir_fd=place, dst_dir_fd=place)
                file = _open_file(place, name)
            write_whole(file, data)
        finally:
            if file >= 0:
                os.close(file)
    finally:
        os.close(place)


def _open_file(folder: int, name: str) -> int:
    descriptor = os.open(name, APPEND, MODE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PermissionError(f"{name} is not a file")
    return descriptor


NAME = "hooks.log"
FLUSH_DELAY_S = 0.2  # lets lines share a write: opening a file takes far longer than adding a line
PENDING_PER_JOB = 4 << 20  # bytes
SOON_PER_JOB = 1 << 18  # bytes that do not wait for more
PENDING = 16 << 20  # bytes, of all jobs together

LEVELS = {"debug": b"DEBUG", "info": b"INFO", "print": b"INFO", "warn": b"WARN", "warning": b"WARN", "error": b"ERROR"}
_CONTROL = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])  # a terminal would interpret these
_SHOWN = {code: f"\\x{code:02x}" for code in _CONTROL}

LineListener = Callable[[int, str, bytes | str, int | None], None]  # its time, level and text, and the run

log = structlog.get_logger()


class PendingLines(Struct):
    """The lines that wait to be written to one file."""

    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    dropped: int = 0


class JobLogs:
    def __init__(self, root: Path, clock: Clock, name: str = NAME) -> None:
        self._root = root
        self._clock = clock
        self._name = name
        self._pending: dict[str, PendingLines] = {}
        self._size = 0  # of the lines that wait or are being written
        self._due = Event()
        self._timer: Handle | None = None
        self._waiting: list[tuple[Callable[[], None], Future[None]]] = []  # flush()
        self._listeners: dict[str, LineListener] = {}  # by folder
        self._failing: set[str] = set()  # folders that a warning was given for
        self._closing = False
        self._tasks = TaskGroup()

    async def __aenter__(self) -> JobLogs:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._write_when_due(), name="job logs")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write the waiting lines, however the block ended."""
        self._closing = True
        self._wake()
        await self._tasks.__aexit__(None, None, None)

    def write(self, folder: str, level: str, text: bytes | str, run: int | None = None) -> None:
        """Add a line to the log of the job that has this folder, relative to the project root.

        Only the loop's thread may call this.
        """
        if self._closing:
            return
        if self._listeners and (listen := self._listeners.get(folder)):
            listen(self._clock.now_ms(), level, text, run)
        line = stamped(self._clock.now_ms(), level, text)
        pending = self._pending.setdefault(folder, PendingLines())
        if pending.size + len(line) > PENDING_PER_JOB or self._size + len(line) > PENDING:
            pending.dropped += 1
        else:
            pending.lines.append(line)
            pending.size += len(line)
            self._size += len(line)
        if pending.size > SOON_PER_JOB:
            self._wake()
        elif self._timer is None:
            self._timer = self._clock.call_later(FLUSH_DELAY_S, self._wake)

    async def flush(self, note_place: Callable[[], None] = lambda: None) -> None:
        """Wait until every line up to the moment at which `note_place` is called is in its file, or dropped."""
        if self._closing:
            note_place()
            return
        written: Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((note_place, written))
        self._wake()
        await written

    def listen(self, folder: str, listener: LineListener) -> Callable[[], None]:
        """Have `listener` called with each line of a folder's log; return the function that ends this."""
        self._listeners[folder] = listener

        def unlisten() -> None:
            self._listeners.pop(folder, None)

        return unlisten

    async def last_lines(self, folder: str, count: int, note_place: Callable[[], None]) -> list[str]:
        """Return the last lines up to the moment at which `note_place` is called: later ones are written later.

        Raises NoAccess when the file can't be read.
        """
        await self.flush(note_place)
        return await asyncio.to_thread(last_lines, self._root / folder / self._name, count)

    def _wake(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._due.set()

    async def _write_when_due(self) -> None:
        is_last = False
        while not is_last:
            await self._due.wait()
            self._due.clear()
            is_last = self._closing  # read before the batch is taken: lines that come during it are written afterwards
            await self._write_pending()

    async def _write_pending(self) -> None:
        """Write the waiting lines.  Nothing else writes, and one batch at a time, so lines keep their order."""
        pending, self._pending = self._pending, {}
        waiting, self._waiting = self._waiting, []
        for note_place, _ in waiting:
            note_place()
        failures = await asyncio.to_thread(self._append_all, pending) if pending else {}
        self._size -= sum(what.size for what in pending.values())
        for folder, error in failures.items():
            if folder not in self._failing:
                log.warning("job log can't be written", file=f"{folder}/{self._name}", reason=str(error))
        self._failing = (self._failing - pending.keys()) | failures.keys()
        for _, written in waiting:
            if not written.done():
                written.set_result(None)

    def _append_all(self, pending: dict[str, PendingLines]) -> dict[str, Exception]:
        """Write batches, in a thread; return the errors by folder."""
        failures: dict[str, Exception] = {}
        for folder, what in pending.items():
            if what.dropped:
                gap = f"{what.dropped} lines were dropped here: they came faster than they could be written"
                what.lines.append(stamped(self._clock.now_ms(), "warn", gap))
            try:
                append(self._root, folder, self._name, b"".join(what.lines))
            except (Forbidden, OSError) as error:
                failures[folder] = error
        return failures


def stamped(at_ms: int, level: str, text: bytes | str) -> bytes:
    """Return a line as it is written, with its time and level."""
    data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else bytes(text)
    if b"\n" in data:  # a further line is indented, so that it can't pass for a new one
        data = data.rstrip(b"\n").replace(b"\n", b"\n    ")
    if len(data.translate(None, _CONTROL)) < len(data):
        data = data.decode("latin-1").translate(_SHOWN).encode("latin-1")
    return b"%s %s %s\n" % (stamp(at_ms).encode(), LEVELS.get(level, b"INFO"), data)
