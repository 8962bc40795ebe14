"""The threads of a worker: which one reads, which one steps a VM, and how one takes over from another.

- The **leader** reads the main socket, has each message handled, steps VMs, and flushes what is to be sent.
- The **follower** polls what the leader and the helpers are doing, and ends runs over a limit.
- **Helpers** step the heavy VMs, those whose steps are long.  They are started when needed, and end when idle.
- One thread reads the bulk socket; it hands its tasks to helpers.

A leader in a long step must not hold up the messages behind it.  So it is replaced:

1. The follower finds the leader in one step for too long.  Under the registry's lock, so that the step can't end
   meanwhile, it starts a new follower, increments the epoch, and lowers the old leader's priority.
2. It flushes, and leads: it handles the rest of the batch, which is in `_inbox`, not in the old leader's hands.
3. The old leader finishes its step, hands the tasks that wait for that VM to a helper, sees that the epoch has changed,
   and ends.

A thread claims a VM before it does anything to it (`HostedVm.busy`), so two leaders never use the same one.  All else
that is shared is under the registry's lock, or in a thread-safe queue.

When the system has no thread left, they go on with those there are: a leader that can't be replaced keeps leading, and
without helpers the reading threads step the heavy VMs too.
"""

from __future__ import annotations

import mmap
import queue
import threading
import time
from collections import deque
from contextlib import suppress

from spyweb.lua.wire import NO_RUN, SLOT_BYTES, SLOTS, PingWorker, RunStuck, ToWorker, Why
from spyweb.lua.worker import limits, priority
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.executor import Executor, ThreadState
from spyweb.lua.worker.link import Receiver, Sender
from spyweb.lua.worker.message_handler import MessageHandler, end
from spyweb.lua.worker.priority import could_start_thread, start_thread
from spyweb.lua.worker.runs import Phase, Registry, Task, WorkerRun

_HELPERS = 2  # helpers that are started as soon as there is work for them
_MOST_HELPERS = 128  # while those are in long steps, which a C function of Lua can be
_IDLE_HELPER = 5.0  # seconds without work, then it goes
_IDLE_LOOKS = 20  # of the follower, with nothing to see: then it sleeps


class ThreadSlots:
    """The shared memory where each stepping thread records its run, for the daemon to read after a death.

    A thread takes a slot for its life.  When all are taken the last one, which nobody reads, is shared.
    """

    def __init__(self, descriptor: int) -> None:
        self.runs = memoryview(mmap.mmap(descriptor, SLOT_BYTES)).cast("Q")
        self._free = list(range(SLOTS - 1, -1, -1))
        self._lock = threading.Lock()

    def take(self) -> int:
        with self._lock:
            return self._free.pop() if self._free else SLOTS - 1

    def give_back(self, slot: int) -> None:
        self.runs[slot] = 0
        with self._lock:
            if slot not in self._free:
                self._free.append(slot)


class Threads:
    def __init__(
        self, registry: Registry, handler: MessageHandler, console: Console, sender: Sender, slots: ThreadSlots
    ) -> None:
        self._registry = registry
        self._handler = handler
        self._console = console
        self._sender = sender
        self._slots = slots
        self._executor = Executor(registry, sender, slots.runs)
        self._inbox: deque[ToWorker] = deque()
        self._epoch = 0  # how often the lead has changed hands
        self._reading = True  # the leader waits for something to arrive
        self._slow: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._helpers = 0
        self._working = 0

    def run(self, small: Receiver, bulk: Receiver) -> None:
        """Lead, and return once another thread leads.  The process must not end then: it ends with its sockets."""
        self._small, self._bulk = small, bulk
        start_thread("follower", self._follow)
        start_thread("bulk in", self._read_bulk)
        self._lead()

    # The leader

    def _lead(self) -> None:
        epoch, thread = self._epoch, self._new_thread_state()
        inbox, sender = self._inbox, self._sender
        while True:
            if inbox:
                task = self._handler.receive(inbox.popleft())
            elif self._helpers or self._slow.empty():
                self._refill(thread)
                continue
            else:
                task = None
                with suppress(queue.Empty):  # there was no thread for a helper that would take it
                    task = self._slow.get_nowait()
            if task is None:
                thread.now = time.monotonic()
            else:
                self._perform_as_leader(task, thread)
                if self._epoch != epoch:
                    break
            if thread.now - sender.flushed > limits.LATEST:
                sender.flush()
        sender.flush()
        self._slots.give_back(thread.slot)

    def _refill(self, thread: ThreadState) -> None:
        self._sender.flush()
        self._handler.make_spare()
        self._reading = True
        arrived = self._small.read()
        self._reading = False
        self._inbox.extend(arrived)
        # A ping alone would keep the follower of an idle worker awake.
        is_ping = len(self._inbox) == 1 and type(self._inbox[0]) is PingWorker
        if not is_ping and not self._registry.awake.is_set():  # after `_reading`: the follower reads that last
            self._registry.awake.set()
        self._sender.flushed = time.monotonic()
        thread.cpu = time.thread_time()

    def _perform_as_leader(self, task: Task, thread: ThreadState) -> None:
        is_slow = task.hosted.heavy or (task.run is None and task.hosted.vm.used > limits.LARGE)
        if is_slow and self._has_helper():
            self._hand_over(task)
            return
        following = self._executor.perform(task, thread, leading=True)
        if following is None:
            return
        hosted = following.hosted
        if following.run is None and hosted.fleeting and hosted.vm.used <= limits.LARGE:
            if not self._inbox or self._sender.waiting >= limits.FEW:
                self._sender.flush()  # the client waits, and closing its VM may take as long as its run did
            self._executor.close(hosted)
        else:
            self._hand_over(following)

    def _new_thread_state(self) -> ThreadState:
        return ThreadState(ident=threading.get_ident(), slot=self._slots.take(), cpu=time.thread_time())

    # The helpers

    def _hand_over(self, task: Task) -> None:
        """Give a task to a helper, and start one while there are few and all of them have work."""
        self._slow.put(task)
        with self._registry.lock:
            is_short = self._helpers < _HELPERS and self._working + self._slow.qsize() > self._helpers
        if is_short:
            self._add_helper()
        self._registry.awake.set()

    def _has_helper(self) -> bool:
        return self._helpers > 0 or self._add_helper()

    def _add_helper(self) -> bool:
        """Start a helper, and return whether the system had a thread left for it."""
        with self._registry.lock:
            self._helpers += 1
        if could_start_thread("helper", self._help):
            return True
        with self._registry.lock:
            self._helpers -= 1
        return False

    def _help(self) -> None:
        priority.give_way()
        thread = self._new_thread_state()
        while True:
            try:
                task = self._slow.get(timeout=_IDLE_HELPER)
            except queue.Empty:
                with self._registry.lock:
                    if self._slow.empty():
                        self._helpers -= 1
                        break
                continue
            with self._registry.lock:
                self._working += 1
            self._perform_slowly(task, thread)
            with self._registry.lock:
                self._working -= 1
        self._slots.give_back(thread.slot)

    def _perform_slowly(self, task: Task, thread: ThreadState) -> None:
        thread.cpu = time.thread_time()
        following = self._executor.perform(task, thread)
        self._sender.flush()
        if following:
            self._hand_over(following)

    def _read_bulk(self) -> None:
        priority.give_way()
        thread = self._new_thread_state()
        while True:
            messages = self._bulk.read()
            self._handler.initialized.wait()  # a big message may overtake the first one of all, on the other socket
            for message in messages:
                task = self._handler.receive(message)
                if task and self._has_helper():
                    self._hand_over(task)
                elif task:
                    self._perform_slowly(task, thread)
            self._sender.flush()

    # The follower

    def _follow(self) -> None:
        looks = 0
        was_short = False
        while True:
            self._registry.awake.wait()
            time.sleep(limits.FOLLOW)
            if self._takes_over():
                break
            self._look_after_runs()
            is_short = not self._slow.empty()
            if is_short and was_short and self._helpers < _MOST_HELPERS:  # tasks wait from one look to the next
                self._add_helper()
            was_short = is_short
            looks = 0 if self._is_busy() else looks + 1
            if looks > _IDLE_LOOKS:
                looks = 0
                self._registry.awake.clear()
                if self._is_busy() or self._sender.waiting:
                    self._registry.awake.set()
        self._sender.flush()
        self._lead()

    def _takes_over(self) -> bool:
        run = self._executor.leading
        if run is None:
            return False
        with self._registry.lock:
            if self._executor.leading is not run or time.monotonic() - run.started < limits.TAKE_OVER:
                return False
            self._registry.watched[run.id] = run
            if not could_start_thread("follower", self._follow):
                return False  # without a follower nobody would watch the runs
            self._executor.leading = None
            self._epoch += 1
            priority.make_give_way(run.thread)
            return True

    def _is_busy(self) -> bool:
        registry = self._registry
        return not self._reading or bool(registry.watched) or bool(registry.closings) or not self._slow.empty()

    def _look_after_runs(self) -> None:
        if self._sender.waiting:
            self._sender.flush()
        if self._registry.closings and has_endless_closing(self._registry):
            self._sender.post(RunStuck(NO_RUN, Why.NOTHING, 0))
        for run in list(self._registry.watched.values()):
            with self._registry.lock:
                task = self._look_after(run, time.monotonic())
            if run.why:
                self._console.wake()
            if task:
                self._hand_over(task)

    def _look_after(self, run: WorkerRun, now: float) -> Task | None:
        """Interrupt a run over a limit, report one that does not end then, and forget one that needs no watching."""
        if run.phase is Phase.ENDED or not (run.started or run.why or run.deadline):
            self._registry.watched.pop(run.id, None)
            return None
        if run.started:
            run_cpu = _cpu_so_far(run)
            self._slots.runs[SLOTS + run.slot] = max(0, int(run_cpu * 1000))
            if not run.why and run_cpu > run.cpu_limit:
                return end(run, int(Why.CPU))
        if run.limit_at and not run.reported and now > max(run.limit_at, run.deadline) + limits.PATIENCE:
            run.reported = True
            cpu_ms = max(0, int((_cpu_so_far(run) if run.started else run.cpu) * 1000))
            self._sender.post(RunStuck(run.id, Why(run.first_why), cpu_ms))
        if run.deadline and now > run.deadline:
            return end(run, int(Why.TIMEOUT))
        return None


def has_endless_closing(registry: Registry) -> bool:
    """Return whether a VM is being closed for too long, once for each VM: only the end of the worker can end that."""
    found = False
    with registry.lock:  # so that the threads are still there to be asked
        for thread, closing in list(registry.closings.items()):
            cpu = limits.cpu_since(thread)
            closing.cpu = cpu if closing.cpu is None else closing.cpu
            limit = limits.CLOSING + closing.size / limits.CLOSING_RATE
            if cpu - closing.cpu > limit and not closing.reported:
                found = closing.reported = True
    return found


def _cpu_so_far(run: WorkerRun) -> float:
    """Return the CPU seconds of a run, with the registry's lock held: else the thread that steps it could end."""
    return run.cpu + limits.cpu_since(run.thread, run.cpu_base, run.started)
