"""The VMs of a worker and the runs in them.  They are changed under the registry's lock, unless noted otherwise."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

from msgspec import Struct, field

from spyweb.lua import wire
from spyweb.lua.wire import OVER_TIMEOUT, BranchBegan, BranchEnded, FromWorker, Scalar
from spyweb.lua.worker.vm import VM

_EARLY = 1000  # of these are remembered; most name runs that have ended
_HEAVY = 1000  # scripts that are remembered


class Phase(Enum):
    WAITING = auto()  # its BEGIN has not been carried out
    BEGUN = auto()
    ENDED = auto()


class WorkerRun(Struct, kw_only=True, eq=False):
    """A run in a VM of this worker."""

    id: int
    hosted: HostedVm
    procedure: str
    arguments: bytes
    cpu_limit: float  # seconds
    phase: Phase = Phase.WAITING
    address: int = 0  # of its coroutine
    asks: int = 0  # the number of the op whose answer it waits for
    why: int = 0  # wire.Why: it is to end
    first_why: int = 0  # which stays when what follows its end has a limit of its own
    limit_at: float = 0.0  # when it was first asked to end
    deadline: float = 0.0  # of its aftermath; 0: it is not in one
    cpu: float = 0.0  # seconds, of the steps that are over
    started: float = 0.0  # when its present step began; 0: it is not being stepped
    waited: float = 0.0  # seconds of its present step, for log credit
    thread: int = 0  # that steps it
    cpu_base: float = 0.0  # that thread's CPU clock before this step
    reported: bool = False  # as stuck
    ops: int = 0  # how many it has asked for
    slot: int = 0  # of that thread
    branch: int | None = None  # that is stepped, or was last; 0: its own coroutine; None: it has no branches
    overdue: list[int] = []  # branches whose time is up, and which the VM has still to end
    reads: wire.Reads = field(default_factory=dict)
    replayed: wire.Reads | None = None  # to be read again, each from its beginning


class Task(Struct, eq=False):
    """One thing to do in a VM: begin a run, go on with it, end it; or, without a run, close the VM."""

    hosted: HostedVm
    run: WorkerRun | None = None
    op: int = 0  # the number of the op that this answers
    form: int = 0
    values: list[Scalar] = field(default_factory=list)


class Closing(Struct, eq=False):
    """A VM that a thread is closing at this moment."""

    size: int  # bytes, when it began
    cpu: float | None = None  # of the thread, when the follower first saw it
    reported: bool = False


Emit = Callable[["HostedVm", bytes, bytes], int]  # takes a log line's level and text; gives wire.Why
Post = Callable[[FromWorker], None]


class HostedVm(Struct, eq=False):
    """A VM with its runs, and its Callbacks: one thread at a time carries out one task in it, the others wait here."""

    id: int
    name: str  # of its script
    send_line: Emit
    post: Post
    heavy: bool = False
    vm: VM = cast("VM", None)  # made after this, since it calls this
    busy: bool = False
    light_steps: int = 0
    pending: list[Task] = []  # its own (a Struct copies it); not a deque: that is larger, and every VM has one
    runs: int = 0
    closing: bool = False  # dropped or discarded: it goes when its last run has ended
    discarded: bool = False  # not even a run that waits here begins any more
    fleeting: bool = False  # made for a single run
    stepped: WorkerRun | None = None

    def why(self) -> int:
        run = self.stepped
        if run is None:
            return 0
        return run.why or (OVER_TIMEOUT if run.overdue else 0)

    def emit(self, level: bytes, text: bytes) -> int:
        return self.send_line(self, level, text)

    def read(self, what: int, ask: Callable[[], wire.Read]) -> wire.Read:
        run = self.stepped
        if run is None:
            return ask()
        if run.replayed and (earlier := run.replayed.get(what)):
            return earlier.pop(0)
        value, reads = ask(), run.reads.setdefault(what, [])
        if len(reads) < wire.MOST_READS:
            reads.append(value[: wire.LONGEST_READ] if isinstance(value, bytes) else value)
        return value

    def overdue_branch(self, index: int) -> int:
        overdue = self.stepped.overdue if self.stepped else []
        if index > len(overdue) or not overdue:
            return 0
        return overdue[index - 1] if index else overdue.pop(0)

    def branch_began(self, branch: int, parent: int, timeout_ms: int) -> None:
        if self.stepped is not None:
            self.post(BranchBegan(self.stepped.id, branch, parent, timeout_ms))

    def branch_ended(self, branch: int, number: int) -> None:
        if self.stepped is not None:
            self.post(BranchEnded(self.stepped.id, branch, number))


class Registry:
    """Holds every VM and run of this worker, and the lock of them all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.awake = threading.Event()  # there is something for the follower to watch
        self.vms: dict[int, HostedVm] = {}
        self.runs: dict[int, WorkerRun] = {}
        self.closing: set[HostedVm] = set()  # not in vms any more, or never, and not yet closed
        self.watched: dict[int, WorkerRun] = {}  # runs that the follower checks
        self.closings: dict[int, Closing] = {}  # by the thread that is at it
        self._heavy: OrderedDict[str, None] = OrderedDict()  # scripts whose steps are long
        self._early: OrderedDict[int, int] = OrderedDict()  # run → why: asked to end before its BEGIN was read

    def note_early(self, run: int, why: int) -> None:
        """Remember a cancel whose run is not known yet: on the other socket, it may have overtaken the begin."""
        self._early[run] = why
        if len(self._early) > _EARLY:
            self._early.popitem(last=False)

    def take_early(self, run: int) -> int:
        return self._early.pop(run, 0) if self._early else 0

    def new_vm(self, number: int, name: str, emit: Emit, post: Post) -> HostedVm:
        """Return the HostedVm of a new VM, which is heavy from its first step on if the script's last VM was."""
        return HostedVm(number, name, emit, post, name in self._heavy)

    def set_heavy(self, hosted: HostedVm, *, heavy: bool) -> None:
        hosted.heavy = heavy
        if not heavy:
            self._heavy.pop(hosted.name, None)
            return
        self._heavy[hosted.name] = None
        if len(self._heavy) > _HEAVY:
            self._heavy.popitem(last=False)

    def retire(self, hosted: HostedVm) -> None:
        """Remove the VM from those in which a run can begin."""
        hosted.closing = True
        if self.vms.pop(hosted.id, None):
            self.closing.add(hosted)
