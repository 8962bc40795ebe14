"""Tells of changes in the project's files: the only module that knows watchfiles."""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
from watchfiles import Change, watch

log = structlog.get_logger()

DEBOUNCE_MS = 50  # an editor's save is several events; watchfiles' own 1.6 s would be felt
STEP_MS = 50  # at 10 two idle watches took 0.5 % of a core more, for 55 ms less from a save to its notice
BEGUN_MS = 500  # without a change for so long, a watch says that it has begun
IGNORED_NAMES = {"__pycache__", "node_modules"}
IGNORED_ENDINGS = ("~", ".swp", ".swx", ".log", ".pyc", ".db", ".db-wal", ".db-shm")
DATA_ENDINGS = (".csv", ".json", ".jsonl", ".txt", ".html")  # what jobs write into their folders, run after run


class Watcher:
    """Tells of changes below the project root, except in data, logs and hidden folders.

    The root itself is watched flat and each of its folders deep: a virtual environment or a data directory of
    thousands of files costs nothing.
    """

    def __init__(self, root: Path, ignored: Iterable[Path], changed: Callable[[], None]) -> None:
        self._root = root
        self._ignored = set(ignored)
        self._changed = changed
        self._folders_changed = asyncio.Event()

    async def watch(self) -> None:
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._watch_root(), name="watch the project root")
                tasks.create_task(self._watch_folders(), name="watch the project's folders")
        except* (OSError, RuntimeError) as errors:
            reason = "; ".join(str(error) for error in errors.exceptions)
            log.warning("files can't be watched, changes are seen by rescans only", reason=reason)

    def _folders(self) -> list[Path]:
        return sorted(path for path in self._root.iterdir() if path.is_dir() and self._is_watched(path))

    def _is_watched(self, path: Path) -> bool:
        hidden = path.name.startswith(".") or path.name in IGNORED_NAMES
        return not hidden and path not in self._ignored and not path.name.endswith(IGNORED_ENDINGS)

    def _matters(self, _change: Change, path: str) -> bool:
        name = Path(path).name
        is_written_by_jobs = name.endswith(DATA_ENDINGS) or name.startswith("hooks.log")
        return self._is_watched(Path(path)) and not is_written_by_jobs

    async def _watch_root(self) -> None:
        folders = self._folders()
        async for _ in self._changes(self._root, recursive=False):
            self._changed()
            if self._folders() != folders:
                folders = self._folders()
                self._folders_changed.set()

    async def _watch_folders(self) -> None:
        while True:
            self._folders_changed = asyncio.Event()
            folders = self._folders()
            if not folders:
                await self._folders_changed.wait()
                continue
            async for _ in self._changes(*folders, stop=self._folders_changed):
                self._changed()

    async def _changes(
        self, *paths: Path, recursive: bool = True, stop: asyncio.Event | None = None
    ) -> AsyncIterator[None]:
        """One item for each burst of changes, and one once the watch has begun: something may have changed before."""
        stop, begun = stop or asyncio.Event(), False
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
        thread = ThreadPoolExecutor(1, "watch files")  # `awatch` would do, but brings 1.2 MB of anyio along
        try:
            while (changes := await asyncio.get_running_loop().run_in_executor(thread, next, bursts, None)) is not None:
                if changes or not begun:
                    begun = True
                    yield
        finally:
            stop.set()  # the thread sees it within a step
            thread.shutdown(wait=False)
