"""The threads of a worker, and who does what.

The leader reads what arrives, steps VMs, writes what comes of it.  The follower watches: when the leader has been in
one step for 20 ms it leads instead, with the half-done batch, and a new follower watches; whoever was leading finishes
that step and goes.  VMs whose steps are long are stepped by helpers, in the slow lane; they and whoever was overtaken
give way to the others.  All that is shared is under the registry's lock, or a queue.

Where the system has no thread left, they go on with those there are: a leader that can't be replaced is not overtaken,
and without helpers whoever reads steps the VMs of the slow lane too.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque

from spyweb.lua.wire import NO_RUN, SLOTS, FromWorker, ToWorker, Why
from spyweb.lua.worker import limits, priority
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.executor import Executor, ThreadState
from spyweb.lua.worker.failure import could_start_thread, start_thread
from spyweb.lua.worker.link import Post
from spyweb.lua.worker.message_handler import MessageHandler, end
from spyweb.lua.worker.runs import Phase, Registry, Task, WorkerRun
from spyweb.lua.worker.slots import ThreadSlots

_HELPERS = 2  # threads of the slow lane that are always to be had
_MOST_HELPERS = 128  # while those are in long steps; a C loop can hold one for a second and a half
_IDLE_HELPER = 5.0  # seconds without work, then it goes
_IDLE_LOOKS = 20  # of the follower, with nothing to see: then it sleeps
_STUCK = int(FromWorker.STUCK)
_PING = int(ToWorker.PING)


class Threads:
    def __init__(
        self, registry: Registry, post: Post, handler: MessageHandler, console: Console, slots: ThreadSlots
    ) -> None:
        self._registry = registry
        self._handler = handler
        self._console = console
        self._small = post.small
        self._bulk = post.bulk
        self._sender = sender = post.sender
        self._slots = slots
        self._inbox: deque[list[object]] = deque()
        self._epoch = 0  # how often the lead has changed hands
        self._reading = True  # the leader waits for something to arrive
        self._awake = threading.Event()  # there is something for the follower to watch
        self._slow: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._helpers = 0
        self._working = 0
        self._executor = Executor(registry, sender, slots.runs, self._awake.set)

    def run(self) -> None:
        """Never returns: the worker ends with its sockets."""
        start_thread("follower", self._follow)
        start_thread("bulk in", self._read_bulk)
        self._lead(self._epoch)
        threading.Event().wait()

    # The leader

    def _lead(self, epoch: int) -> None:
        thread = self._sit()
        inbox, sender = self._inbox, self._sender
        while True:
            if inbox:
                task = self._handler.receive(inbox.popleft())
            elif self._helpers or self._slow.empty():
                self._refill(thread)
                continue
            else:
                task = self._left_over()
            if task is None:
                thread.now = time.monotonic()
            elif not self._do(task, thread, epoch):
                break
            if thread.now - sender.flushed > limits.LATEST:
                sender.flush()
        self._slots.give_back(thread.slot)

    def _refill(self, thread: ThreadState) -> None:
        self._sender.flush()
        self._handler.make_spare()
        self._reading = True
        arrived = self._small.read()
        self._reading = False
        self._inbox.extend(arrived)
        if not self._awake.is_set() and not self._is_pinged():  # in this order: else it could fall asleep just now
            self._awake.set()
        self._sender.flushed = time.monotonic()
        thread.cpu = time.thread_time()

    def _is_pinged(self) -> bool:
        """Nothing to be watched: twice a second that would keep the follower of an idle worker awake."""
        return len(self._inbox) == 1 and self._inbox[0][0] == _PING

    def _do(self, task: Task, thread: ThreadState, epoch: int) -> bool:
        """Gives whether this thread still leads."""
        is_slow = task.hosted.heavy or (task.run is None and task.hosted.vm.used > limits.LARGE)
        if is_slow and self._has_helper():
            self._hand_over(task)
            return True
        following = self._executor.perform(task, thread, leading=True)
        is_closing = following is not None and following.run is None
        if following and is_closing and following.hosted.fleeting and following.hosted.vm.used <= limits.LARGE:
            if not self._inbox or self._sender.waiting >= limits.FEW:
                self._sender.flush()  # whoever asked for it waits; closing its VM may take as long as its run did
            self._executor.close(following.hosted)
        elif following:
            self._hand_over(following)
        if self._epoch == epoch:
            return True
        self._sender.flush()
        return False

    def _sit(self) -> ThreadState:
        return ThreadState(ident=threading.get_ident(), slot=self._slots.take(), cpu=time.thread_time())

    # The slow lane

    def _hand_over(self, task: Task) -> None:
        self._slow.put(task)
        with self._registry.lock:
            is_short = self._helpers < _HELPERS and self._working + self._slow.qsize() > self._helpers
        if is_short:
            self._add_helper()
        self._awake.set()

    def _has_helper(self) -> bool:
        return self._helpers > 0 or self._add_helper()

    def _add_helper(self) -> bool:
        """Whether there was a thread left for it."""
        with self._registry.lock:
            self._helpers += 1
        if could_start_thread("helper", self._help):
            return True
        with self._registry.lock:
            self._helpers -= 1
        return False

    def _left_over(self) -> Task | None:
        """By whoever could not do it, for a helper that there was no thread for."""
        try:
            return self._slow.get_nowait()
        except queue.Empty:
            return None

    def _help(self) -> None:
        priority.give_way()
        thread = self._sit()
        while True:
            try:
                task = self._slow.get(timeout=_IDLE_HELPER)
            except queue.Empty:
                if self._may_go():
                    break
                continue
            with self._registry.lock:
                self._working += 1
            self._help_with(task, thread)
            with self._registry.lock:
                self._working -= 1
        self._slots.give_back(thread.slot)

    def _help_with(self, task: Task, thread: ThreadState) -> None:
        thread.cpu = time.thread_time()
        following = self._executor.perform(task, thread)
        self._sender.flush()
        if following:
            self._hand_over(following)

    def _may_go(self) -> bool:
        with self._registry.lock:
            if not self._slow.empty():
                return False
            self._helpers -= 1
            return True

    def _read_bulk(self) -> None:
        priority.give_way()
        thread = self._sit()
        while True:
            for message in self._bulk.read():
                task = self._handler.receive(message)
                if task and self._has_helper():
                    self._hand_over(task)
                elif task:
                    self._help_with(task, thread)
            self._sender.flush()

    # The follower

    def _follow(self) -> None:
        looks = 0
        was_short = False
        while True:
            self._awake.wait()
            time.sleep(limits.FOLLOW)
            if self._takes_over():
                break
            self._look_after_runs()
            was_short = self._relieve_helpers(was_short)
            looks = 0 if self._is_busy() else looks + 1
            if looks > _IDLE_LOOKS:
                looks = 0
                self._fall_asleep()
        self._sender.flush()
        self._lead(self._epoch)

    def _takes_over(self) -> bool:
        run = self._executor.leading
        if run is None:
            return False
        with self._registry.lock:
            if self._executor.leading is not run or time.monotonic() - run.started < limits.TAKE_OVER:
                return False
            self._registry.watched[run.id] = run
            if not could_start_thread("follower", self._follow):
                return False  # somebody has to watch
            self._executor.leading = None
            self._epoch += 1
            priority.make_give_way(run.thread)
            return True

    def _relieve_helpers(self, was_short: bool) -> bool:
        """One more while tasks wait from one look to the next."""
        is_short = not self._slow.empty()
        if is_short and was_short and self._helpers < _MOST_HELPERS:
            self._add_helper()
        return is_short

    def _is_busy(self) -> bool:
        registry = self._registry
        return not self._reading or bool(registry.watched) or bool(registry.closings) or not self._slow.empty()

    def _fall_asleep(self) -> None:
        self._awake.clear()
        if self._is_busy() or self._sender.waiting:
            self._awake.set()

    def _look_after_runs(self) -> None:
        if self._sender.waiting:
            self._sender.flush()
        if self._registry.closings and has_endless_closing(self._registry):
            self._sender.post([_STUCK, NO_RUN, int(Why.NOTHING), 0])
        for run in list(self._registry.watched.values()):
            with self._registry.lock:
                task = self._look_after(run, time.monotonic())
            if run.why:
                self._console.wake()
            if task:
                self._hand_over(task)

    def _look_after(self, run: WorkerRun, now: float) -> Task | None:
        """Arms what is over a limit, reports what did not heed it, forgets what needs no watching."""
        if run.phase is Phase.ENDED or not (run.started or run.why or run.deadline):
            self._registry.watched.pop(run.id, None)
            return None
        if run.started:
            run_cpu = _cpu_so_far(run)
            self._slots.runs[SLOTS + run.slot] = max(0, int(run_cpu * 1000))
            if not run.why and run_cpu > run.cpu_limit:
                return end(run, int(Why.CPU))
        if run.limit_at and not run.reported and now > _patience_ends(run):
            run.reported = True
            cpu_ms = max(0, int((_cpu_so_far(run) if run.started else run.cpu) * 1000))
            self._sender.post([_STUCK, run.id, run.first_why, cpu_ms])
        if run.deadline and now > run.deadline:
            return end(run, int(Why.TIMEOUT))
        return None


def has_endless_closing(registry: Registry) -> bool:
    """Whether a VM is being closed for too long, which only the worker's own end can end.  It is said once of each."""
    found = False
    with registry.lock:  # so that the threads are still there to be asked
        for thread, closing in list(registry.closings.items()):
            cpu = limits.cpu_of(thread)
            closing.cpu = cpu if closing.cpu is None else closing.cpu
            limit = limits.CLOSING + closing.size / limits.CLOSING_RATE
            if cpu - closing.cpu > limit and not closing.reported:
                found = closing.reported = True
    return found


def _patience_ends(run: WorkerRun) -> float:
    return max(run.limit_at, run.deadline) + limits.PATIENCE


def _cpu_so_far(run: WorkerRun) -> float:
    """With the registry's lock held, so that the thread that steps it is still there to be asked."""
    return run.cpu + limits.cpu_since(run.thread, run.cpu_base, run.started)
