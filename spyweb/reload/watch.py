"""Watch the project's files for changes: the only module that knows watchfiles."""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path

import structlog
from watchfiles import Change, watch
from watchfiles.main import FileChange

from spyweb.clock import Clock

log = structlog.get_logger()

Inode = tuple[int, int]  # the device's number and the file's: of a link, those of its target
Folders = dict[Path, Inode]

DEBOUNCE_MS = 50  # an editor's save is several events; watchfiles' own delay would be felt
STEP_MS = 50  # less costs processor time while idle, for a delay that nobody notices
PAUSE = 5.0  # seconds until a watch that failed begins again: a cause that stays costs a rescan each time
BEGUN_MS = 500  # without a change for so long, a watch says that it has begun
FAULTS = (OSError, RuntimeError, ValueError)  # of a watch; a name that isn't UTF-8 brings either of the last two
IGNORED_NAMES = {"__pycache__", "node_modules"}
IGNORED_ENDINGS = ("~", ".swp", ".swx", ".log", ".pyc", ".db", ".db-wal", ".db-shm")
DATA_ENDINGS = (".csv", ".json", ".jsonl", ".txt", ".html")  # what jobs write into their folders, run after run


class Watcher:
    """Reports changes below the project root, except in data, logs and hidden folders.

    The root itself is watched flat and each of its folders deep: a virtual environment or a data directory of
    many files costs nothing.
    """

    def __init__(self, root: Path, ignored: Iterable[Path], changed: Callable[[], None], clock: Clock) -> None:
        self._root = root
        self._ignored = set(ignored)
        self._changed = changed
        self._clock = clock
        self._watched: Folders = {}  # as they were when their watch began
        self._folders_changed = asyncio.Event()
        self._warned_of: set[str] = set()

    async def watch(self) -> None:
        async with TaskGroup() as tasks:
            tasks.create_task(self._watch_root(), name="watch the project root")
            tasks.create_task(self._watch_folders(), name="watch the project's folders")

    def _folders(self) -> Folders:
        """Return the root's folders that can be watched; none while the root is gone, which its own watch reports."""
        folders = {}
        with suppress(OSError):
            for path in filter(self._is_watched, self._root.iterdir()):
                with suppress(OSError):
                    if path.is_dir():
                        folders[path] = inode_of(path)
        return folders

    def _is_watched(self, path: Path) -> bool:
        hidden = path.name.startswith(".") or path.name in IGNORED_NAMES
        ignored = path in self._ignored or path.name.endswith(IGNORED_ENDINGS)
        return not hidden and not ignored and is_text(path.name)

    def _matters(self, _change: Change, path: str) -> bool:
        name = Path(path).name
        is_written_by_jobs = name.endswith(DATA_ENDINGS) or name.startswith("hooks.log")
        return self._is_watched(Path(path)) and not is_written_by_jobs

    async def _watch_root(self) -> None:
        while True:
            try:
                await self._watch_this_root()
            except FAULTS as fault:
                self._tell_fault(fault)
                await self._clock.sleep(PAUSE)

    async def _watch_this_root(self) -> None:
        """Watch the root until another folder has taken its place."""
        root, stop = inode_of(self._root), asyncio.Event()
        async with aclosing(self._changes(self._root, recursive=False, stop=stop)) as bursts:
            async for burst in bursts:
                self._changed()
                if self._touches_a_folder(burst) or self._folders() != self._watched:
                    self._folders_changed.set()
                if inode_of(self._root) != root:
                    stop.set()

    def _touches_a_folder(self, burst: set[FileChange]) -> bool:
        """Return whether a watched folder itself has changed.

        One that is removed and made anew often has the old one's inode, and one may be closed or opened.
        """
        return any(Path(path) in self._watched for _, path in burst)

    async def _watch_folders(self) -> None:
        """Watch the folders; one that can't be watched is left out for a while, without loss for the others."""
        left_out: set[Path] = set()
        while True:
            try:
                await self._watch_these_folders(left_out)
                left_out = set()
            except FAULTS as fault:
                self._tell_fault(fault)
                left_out |= (named_in(str(fault), self._watched) - left_out) or set(self._watched)

    async def _watch_these_folders(self, left_out: set[Path]) -> None:
        """Watch these folders until one is new, gone or replaced; if some were left out, only for a while."""
        self._folders_changed = stop = asyncio.Event()
        self._watched = folders = self._folders()
        pause = self._clock.call_later(PAUSE, stop.set) if left_out else None
        try:
            async with aclosing(self._changes(*(folders.keys() - left_out), stop=stop)) as bursts:
                async for _ in bursts:
                    self._changed()
                    if self._folders() != folders:  # the root's watch doesn't see a link's target replaced
                        stop.set()
        finally:
            if pause:
                pause.cancel()

    def _tell_fault(self, fault: Exception) -> None:
        """Log a fault once, and report a change: until the watch begins again, only rescans see what happens."""
        reason = str(fault)
        if reason not in self._warned_of:
            self._warned_of.add(reason)
            log.warning("files can't be watched for now, changes are seen by rescans only", reason=reason)
        self._changed()

    async def _changes(
        self, *paths: Path, recursive: bool = True, stop: asyncio.Event
    ) -> AsyncGenerator[set[FileChange], None]:
        """Yield each burst of changes, and an empty one when the watch begins: something may have changed before."""
        if not paths:
            await stop.wait()
            return
        begun = False
        bursts = watch(
            *paths,
            watch_filter=self._matters,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            recursive=recursive,
            ignore_permission_denied=True,  # one closed folder must not blind it to all the others
            stop_event=stop,
            rust_timeout=BEGUN_MS,
            yield_on_timeout=True,
        )
        thread = ThreadPoolExecutor(1, "watch files")  # `awatch` would do, but brings anyio along, which takes memory
        try:
            while (changes := await asyncio.get_running_loop().run_in_executor(thread, next, bursts, None)) is not None:
                if changes or not begun:
                    begun = True
                    yield changes
        finally:
            stop.set()  # the thread sees it within a step
            thread.shutdown(wait=False)


def inode_of(path: Path) -> Inode:
    status = path.stat()
    return status.st_dev, status.st_ino


def is_text(name: str) -> bool:
    """Return whether the name is UTF-8: watchfiles accepts no other."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def named_in(reason: str, folders: Iterable[Path]) -> set[Path]:
    """Return the folders around the file that watchfiles complains of, whose name is only in its message."""
    return {folder for folder in folders if f'"{folder}/' in reason or f'"{folder}"' in reason}
