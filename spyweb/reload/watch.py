"""Watch the project's files for changes: the only module that knows watchfiles."""

from __future__ import annotations

import asyncio
import os
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
Folders = dict[str, Inode]  # by path

DEBOUNCE_MS = 50  # an editor's save is several events; watchfiles' own delay would be felt
STEP_MS = 50  # less costs processor time while idle, for a delay that nobody notices
PAUSE = 5.0  # seconds until a watch that failed begins again: a cause that stays costs a rescan each time
BEGUN_MS = 500  # without a change for so long, a watch says that it has begun
FAULTS = (OSError, RuntimeError, ValueError)  # of a watch; a name that isn't UTF-8 brings either of the last two
IGNORED_NAMES = {"__pycache__", "node_modules"}
IGNORED_ENDINGS = ("~", ".swp", ".swx", ".log", ".pyc", ".db", ".db-wal", ".db-shm")
OWN_FOLDERS = {"jobs", "server"}  # they may be mounted into a container each
DATA_ENDINGS = (".csv", ".json", ".jsonl", ".txt", ".html")  # what jobs write into their folders, run after run


class Watcher:
    """Reports changes below the project root, except in data, logs and hidden folders.

    Each folder is watched separately: hidden and ignored folders cost nothing, and no other file system is entered.
    """

    def __init__(self, root: Path, ignored: Iterable[Path], changed: Callable[[], None], clock: Clock) -> None:
        self._root = root
        self._ignored = set(map(str, ignored))
        self._changed = changed
        self._clock = clock
        self._warned_of: set[str] = set()

    async def watch(self) -> None:
        """Watch the folders; where that fails, after a pause once more, and everything counts as changed."""
        while True:
            try:
                await self._watch_these_folders(await asyncio.to_thread(self._find_folders))
            except FAULTS as fault:
                if str(fault) not in self._warned_of:
                    self._warned_of.add(str(fault))
                    log.warning("files can't be watched for now", reason=str(fault), again_in_s=PAUSE)
                self._changed()
                await self._clock.sleep(PAUSE)

    async def _watch_these_folders(self, folders: Folders) -> None:
        """Watch these folders until one is new, removed or replaced."""
        stop, begun = asyncio.Event(), False
        async with aclosing(self._changes(*folders, stop=stop)) as bursts:
            async for burst in bursts:
                self._changed()
                # As the watch begins: a folder may have been made before that of its parent began.
                missed = not begun and await asyncio.to_thread(self._find_folders) != folders
                if missed or touches_a_folder(burst, folders):
                    stop.set()
                begun = True

    def _find_folders(self) -> Folders:
        """Find the root and all folders below it that are to be watched.  Raises OSError while the root is missing."""
        root, inside = str(self._root), os.path.realpath(self._root) + os.sep
        folders = {root: inode_of(os.stat(root))}
        seen = set(folders.values())  # a link may lead to a folder that has been found already
        for folder in (found := [root]):
            with suppress(OSError):  # it may not be entered
                for entry in os.scandir(folder):
                    if not self._is_watched(entry.path) or not entry.is_dir():
                        continue
                    inode = inode_of(entry.stat())
                    is_elsewhere = inode[0] != folders[folder][0] and not (folder == root and entry.name in OWN_FOLDERS)
                    leaves = folder != root and entry.is_symlink() and not os.path.realpath(entry).startswith(inside)
                    if inode not in seen and not is_elsewhere and not leaves:
                        seen.add(inode)
                        folders[entry.path] = inode
                        found.append(entry.path)
        return folders

    def _is_watched(self, path: str) -> bool:
        name = os.path.basename(path)
        hidden = name.startswith(".") or name in IGNORED_NAMES
        ignored = path in self._ignored or name.endswith(IGNORED_ENDINGS)
        return not hidden and not ignored and is_text(name)

    def _matters(self, _change: Change, path: str) -> bool:
        is_written_by_jobs = path.endswith(DATA_ENDINGS) or os.path.basename(path).startswith("hooks.log")
        return self._is_watched(path) and not is_written_by_jobs

    async def _changes(self, *paths: str, stop: asyncio.Event) -> AsyncGenerator[set[FileChange], None]:
        """Yield each burst of changes, and an empty one when the watch begins: something may have changed before."""
        begun = False
        bursts = watch(
            *paths,
            watch_filter=self._matters,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            recursive=False,
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
            thread.submit(bursts.close)
            thread.shutdown(wait=False)


def touches_a_folder(burst: set[FileChange], folders: Folders) -> bool:
    """Return whether a folder is new or a watched one was replaced: a new folder often gets the old inode."""
    return any(path in folders or os.path.isdir(path) for _, path in burst)


def inode_of(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino


def is_text(name: str) -> bool:
    """Return whether the name is UTF-8: watchfiles accepts no other."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
