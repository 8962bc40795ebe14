"""The supervisor starts and replaces workers: shared ones, and workers of a single job.

There are always as many shared ones as were asked for, some of them perhaps still starting.  Those of single jobs have
a third of the descriptors and start a few at a time; the runs beyond wait in the pool's line (docs/design/0060).
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Coroutine, Iterator
from itertools import chain, islice

import structlog

from spyweb import descriptors
from spyweb.cooperative import within
from spyweb.lua.worker_process import READY_LIMIT, Death, WorkerPool, WorkerProcess
from spyweb.model import JobId

log = structlog.get_logger()

PING_EVERY = 0.5  # seconds
GRACE = 1.0  # seconds for the other runs of a worker with a stuck one: most runs are shorter, and it keeps a core busy
FIRST_DELAY = 0.1  # seconds before the next fork after a failed one; doubled for each further one ...
LONGEST_DELAY = 5.0  # ... up to this
MOST_DOUBLINGS = 10  # more make no difference
END_LIMIT = 2.0  # seconds for all to be dead
STARTS = 3  # of all workers, before the daemon's own start fails
STARTING = 4  # workers of single jobs that start at once
SHARE = 3  # the share of all descriptors that workers of single jobs may have: one part of so many ...
DESCRIPTORS_EACH = 4  # ... of each two sockets, its memory and its process ...
DESCRIPTORS_TO_START = 7  # ... and until it has its own ends of them


class Supervisor:
    def __init__(self, pool: WorkerPool) -> None:
        self.deaths = 0
        self.kills = 0  # deaths that were brought about
        self.trouble = "they are slow to start"  # the latest reason why there is no worker
        self._pool = pool
        self._shared: list[WorkerProcess] = []
        self._own: dict[JobId, WorkerProcess] = {}  # the least recently used first
        self._starting: set[WorkerProcess] = set()  # of those
        self._detached: set[WorkerProcess] = set()
        self._failures = 0  # forks in a row that came to nothing
        self._tasks: set[Task[None]] = set()
        self._is_closing = False

    def __iter__(self) -> Iterator[WorkerProcess]:
        return chain(self._shared, self._own.values(), list(self._detached))

    def open(self, workers: int) -> None:
        self._shared = [self._start_worker(None) for _ in range(workers)]
        self._start(self._watch())

    async def wait_until_up(self) -> bool:
        """Wait for the shared workers, and some times for replacements; return whether there is one."""
        for _ in range(STARTS):
            starting = [within(self._pool.clock, READY_LIMIT, worker.up) for worker in self._shared]
            await asyncio.gather(*starting)
            if any(worker.is_up for worker in self._shared):
                return True
        return False

    def least_loaded(self) -> WorkerProcess:
        return min(self._shared, key=lambda worker: worker.load)

    def own_worker(self, job: JobId) -> WorkerProcess | None:
        """Return the job's own worker, started if need be; None if there is no room for another one."""
        worker = self._own.get(job)
        if worker is None and self.has_room:
            worker = self._own[job] = self._start_worker(job)
            self._starting.add(worker)
        return worker

    def note_used(self, worker: WorkerProcess) -> None:
        """Note that a run in it has just ended: it is stopped after the others if another job needs its room."""
        if worker.job is not None and self._own.get(worker.job) is worker:
            self._own[worker.job] = self._own.pop(worker.job)

    @property
    def most_own(self) -> int:
        """Return how many workers of single jobs there may be at once."""
        return descriptors.share(SHARE, DESCRIPTORS_EACH)

    @property
    def has_room(self) -> bool:
        """Return whether another worker of a single job may be started now."""
        return len(self._starting) < STARTING and not self._is_full

    @property
    def _stopping(self) -> int:
        return sum(worker.job is not None for worker in self._detached)

    @property
    def _is_full(self) -> bool:
        needed = DESCRIPTORS_TO_START * (len(self._starting) + 1) + descriptors.RESERVE
        there_are = len(self._own) + self._stopping
        return there_are >= self.most_own or (there_are > 0 and descriptors.left() < needed)

    def idle_workers(self, wanted: int) -> list[WorkerProcess]:
        """Return the workers of single jobs to stop so that this many others find room, least recently used first."""
        if not wanted or not self._is_full:
            return []
        idle = (worker for worker in self._own.values() if worker.is_idle)
        return list(islice(idle, max(min(wanted, STARTING) - self._stopping, 0)))

    def replace(self, worker: WorkerProcess) -> None:
        """Replace a worker that can't go on; while its replacement starts, and for a grace, its other runs may end."""
        worker.retire()
        replacement = self._detach(worker)
        self._detached.add(worker)
        self._start(self._hand_over(worker, replacement))

    async def _hand_over(self, worker: WorkerProcess, replacement: WorkerProcess | None) -> None:
        if replacement is not None:
            await within(self._pool.clock, READY_LIMIT, replacement.up)
        await within(self._pool.clock, GRACE, worker.retire())
        worker.kill("a run in it could not be stopped", blameless=True)

    def stop_worker(self, worker: WorkerProcess) -> None:
        """Stop a worker that is not needed any more."""
        self._detach(worker)
        self._detached.add(worker)
        worker.stop()

    def mark_lost(self, worker: WorkerProcess, death: Death) -> None:
        """Note that a worker is dead; a shared one is replaced."""
        if not worker.is_stopped:
            self.deaths += 1
            self.kills += death.is_killed
            if not worker.is_proven:
                self._failures += 1
                self.trouble = death.reason
            log.warning("a worker died", pid=worker.pid, reason=death.reason, job=worker.job)
        self._detached.discard(worker)
        self._detach(worker)

    def note_proven(self, worker: WorkerProcess) -> None:
        """Note that the worker has answered a ping, so that forking works."""
        self._failures = 0
        self._starting.discard(worker)

    def _detach(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Give the worker no more work; return the worker that replaces it, if there is one."""
        self._starting.discard(worker)
        if worker.job is not None:
            if self._own.get(worker.job) is worker:
                del self._own[worker.job]
            return None
        if worker not in self._shared or self._is_closing:
            return None
        replacement = self._start_worker(None)
        self._shared[self._shared.index(worker)] = replacement
        return replacement

    def _start_worker(self, job: JobId | None) -> WorkerProcess:
        worker = WorkerProcess(self._pool, job)
        delay = min(FIRST_DELAY * 2.0 ** min(self._failures - 1, MOST_DOUBLINGS), LONGEST_DELAY)
        self._start(worker.start(delay if self._failures else 0))
        return worker

    async def _watch(self) -> None:
        while True:
            await self._pool.clock.sleep(PING_EVERY)
            for worker in list(self):
                worker.ping()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = self._pool.tasks.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop all workers and wait until they are dead."""
        self._is_closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        workers = list(self)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*(within(self._pool.clock, END_LIMIT, worker.dead) for worker in workers))
