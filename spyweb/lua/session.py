"""One call into a VM as the daemon sees it: the request, the host that answers its ops, and its ending."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from spyweb.clock import Handle
from spyweb.histogram import Histogram
from spyweb.lua import wire
from spyweb.lua.recording import Recording
from spyweb.model import MIB, Ending, Isolation, JobId, RunId
from spyweb.permissions.policy import Policy

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

VARIABLE = "\0"  # stands for a name in a refusal
CUT = "..."  # where Lua leaves out the beginning of a chunk's name


class VariableRule(NamedTuple):
    """The variables that one list of permissions has, and what env_get raises for any other."""

    names: frozenset[str]
    refusal: str  # with VARIABLE for its name


def variable_rules(policy: Policy, job: str) -> tuple[VariableRule, ...]:
    """Return the rules for variables that the VMs of a job are given."""
    return tuple(
        VariableRule(names, policy.refuse_variable(VARIABLE, is_own=layer is policy.own).text("env_get", job))
        for layer in policy.layers
        if (names := layer.env) is not None
    )


class Code(Struct, frozen=True, kw_only=True):
    """One loaded version of a job's script."""

    job: JobId
    generation: int
    chunk: str  # the name Lua shows in errors: the file's path relative to the project root
    source: bytes
    more: tuple[tuple[str, bytes], ...] = ()  # chunk and source of its further files, in the order they are executed
    memory_limit: int = 64 * MIB  # bytes
    isolation: Isolation = Isolation.SHARED
    variables: tuple[VariableRule, ...] = ()  # each must permit what env_get shows

    @property
    def files(self) -> list[tuple[str, bytes]]:
        return [(self.chunk, self.source), *self.more]

    @property
    def size(self) -> int:
        """Return the size of all sources in bytes."""
        return len(self.source) + sum(len(source) for _, source in self.more)

    def source_of(self, chunk: str) -> bytes:
        """Return the source of one of its files."""
        return dict(self.more).get(chunk, self.source)

    def chunk_shown_as(self, shown: str) -> str:
        """Return the whole name of a chunk of which Lua shows the end, perhaps from the middle of a character on."""
        if not shown.startswith(CUT):
            return shown
        end = shown.removeprefix(CUT).lstrip("\ufffd")
        chunks = (self.chunk, *(chunk for chunk, _ in self.more))
        return next((chunk for chunk in chunks if chunk.endswith(end)), shown)


class Procedure(StrEnum):
    """One of the procedures that a worker can be asked to run in a VM (BeginRun), with its arguments.

    `run(ctx, may_retry)` and `trigger(ctx, may_retry, event, conditions)` are a script job's runs.  `load()` and
    `cycle(ctx)` are a monitor's: see hooks.py.  `alert(ctx, may_retry, name, incident)` calls on_down or on_up of a
    script; where the file defines none, once it has been executed, the run is skipped.  The others are meant for a
    separate VM, whose files they execute first.

    `request(request)` answers one HTTP request of a Lua endpoint.  `request` is a table with `method`, `path`,
    `path_args`, `query`, `headers` (names in lower case), `body`, `client_ip`, and for itself `route`, the name of the
    handler, and `is_public`.  The tables that handlers are put in are there before the files are executed.  The answer
    leaves by the private op `_respond(status, headers, body)`: an integer from 100 to 599, a table of texts or nil,
    bytes.  Which headers may be sent is for the daemon to say.  What was deferred follows, and may call ops; then the
    run ends.  A short answer without headers, after which nothing follows, is the run's result instead, `{status,
    body}`: that saves a round trip. A run that fails has not responded, except that, with something deferred, it says
    so by `_respond()`: its end will tell why.

    `tests(options)` gives, as its result, the sorted names of all global functions that begin with `test_`.

    `test(name, options)` calls one of them, with `ctx`, and then what it deferred; no hook follows.  Where the text of
    its error has several lines (an assertion that shows both values) the traceback begins with all of it.

    `options` may have `ctx`; `globals`, a table of what is to be in the globals; `routes`: true gives the tables of a
    server; `virtual_time`: true makes each `sleep` move os.time, os.date and os.clock on by what it was asked for,
    once the daemon has answered it, which may be at once.
    """

    RUN = "run"
    TRIGGER = "trigger"
    ALERT = "alert"
    LOAD = "load"
    CYCLE = "cycle"
    REQUEST = "request"
    TESTS = "tests"
    TEST = "test"


class Request(Struct, frozen=True, kw_only=True):
    """A request to run one procedure in a VM."""

    run: RunId
    code: Code
    timeout_ms: int
    cpu_limit_ms: int
    procedure: Procedure = Procedure.RUN
    arguments: Sequence[object] = ()
    recording: Recording | None = None  # of its ops; None: they are not recorded
    reads: wire.Reads | None = None  # of a run that is replayed: what it reads again of clocks and chance


Results = Sequence[object]
NOTHING: Results = ()
Lineage = tuple[int, ...]  # of who asks for an op: its branch, the one that this is in, and so on; () is the run itself


class StoreAnswer(Generic[T_co]):
    """Results of an op, which `results_of` makes from a future of the store once that is done.

    Waiting and cancelling apply to that future, `source`: a future of their own, completed by the other, would cost
    each op a second turn of the loop.
    """

    __slots__ = ("_results_of", "source")

    def __init__(self, source: Future[T_co], results_of: Callable[[Future[T_co]], Results]) -> None:
        self.source = source
        self._results_of = results_of

    def result(self) -> Results:
        """Return the results; called once, when the source is done.  Raises the error that the script is to see."""
        return self._results_of(self.source)

    def __await__(self) -> Generator[object, None, Results]:
        if not self.source.done():
            with suppress(Exception):  # `result` meets it again, and may make something of it
                yield from self.source.__await__()
        return self.result()


class Unstarted(Generic[T]):
    """Results of a coroutine that is made once they are awaited.

    The task that awaits an op is cancelled before its first step where the run ends in the turn in which it has asked:
    a coroutine made before would never be awaited, which Python complains of.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, T]:
        return self._make().__await__()


class Host(Protocol):
    """The daemon's side of a run: it carries out the ops that the run calls and takes its log lines."""

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Results]:
        """Carry out an op and return its results.  An OpError is raised in Lua at the caller's line.

        A future that is done, or a StoreAnswer whose source is done, is answered at once; others by a callback, and all
        else by a task that awaits it, unless the run ends before that begins.
        """

    def end_branch(self, lineage: Lineage) -> None:
        """Release the locks and the transaction of a branch."""

    def log(self, level: str, text: bytes) -> None:
        """Take a line that the script logged or printed (level "print")."""


class EngineInfo(Struct, frozen=True, kw_only=True):
    """The facts about the engine; but for the variables every worker is given them at its start."""

    ops: Sequence[str]  # the names that become functions in Lua
    engine: Mapping[str, object] = field(default_factory=dict)  # the `engine` table
    env: Mapping[str, str] = field(default_factory=dict)  # what `env_get` shows where nothing forbids it
    timezone: str = "UTC"

    def shown_to(self, code: Code) -> dict[str, str]:
        """Return what env_get shows in the VMs of this code."""
        return {name: value for name, value in self.env.items() if all(name in rule.names for rule in code.variables)}

    def variables_of(self, code: Code) -> bytes:
        """Return what env_get shows in the VMs of this code, and raises for other names, packed."""
        shown = self.shown_to(code)
        rules = [{"names": dict.fromkeys(rule.names, True), "refusal": rule.refusal} for rule in code.variables]
        return wire.pack([{"env": shown, "rules": rules}]) if shown or rules else wire.NO_VARIABLES


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """The state of one worker, as people are shown it."""

    pid: int  # 0: it is being started
    job: JobId | None  # the one job it is for, when it is isolated or quarantined
    vms: int
    runs: int
    used_bytes: int
    retiring: bool


class PoolStats(Struct, frozen=True, kw_only=True):
    rights: Sequence[str]  # what workers have given up, and what could not be
    workers: Sequence[WorkerInfo]
    quarantined: Mapping[JobId, str]  # job → why
    deaths: int  # of workers, since start
    loads: int = 0  # of VMs for runs, since start
    kills: int = 0  # those of the deaths that the daemon itself has brought about
    answering: int = 0  # shared workers that are up and answer
    waiting: int = 0  # runs that wait for a worker of their job's own ...
    most_own: int = 0  # ... of which there may be so many at once


class PendingRun(Struct, kw_only=True, eq=False):
    """A request that is under way: its host, and the future of its ending."""

    request: Request
    host: Host
    ending: Future[Ending]
    op_times: Mapping[str, Histogram] = msgspec.field(default_factory=dict)  # by the name of an op, in seconds
    is_fresh: bool = False  # it has a VM of its own
    tries: int = 0  # how many VMs were lost before it could begin in them
    timer: Handle | None = None  # while it waits for a VM

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def end(self, ending: Ending) -> None:
        if not self.ending.done():
            self.ending.set_result(ending)
