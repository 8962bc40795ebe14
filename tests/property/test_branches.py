"""Branches of a run in any program and any order of events: errors, kills, timeouts, locks, answers, late messages.

A VM with its executor on one side, a channel with a host of pending ops on the other, and between them two queues as
two sockets are.  Scripts are drawn: functions side by side, inside each other, with a time of their own, in coroutines
and protected calls, which wait for ops and locks.  No op is answered to the wrong branch, none is left waiting, and
nothing is held after the end.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, TaskGroup
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spyweb.lua import wire
from spyweb.lua.channel import RunChannel
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.session import Code, Lineage, PendingRun, Request, Results
from spyweb.lua.wire import BranchBegan, BranchEnded, FromWorker, Message, OpCall, PackedOpCall, Why
from spyweb.lua.worker.vm import compile_lua_files
from spyweb.model import JobId, RunId
from tests.fakes.clock import FakeClock
from tests.fakes.inline_worker import InlineWorker

BYTECODE = compile_lua_files()
LOCKS = ("door", "window")
PRELUDE = """
local function w(token, padding)
  local got = wait(token, padding)
  if got ~= token then echo('wrong: ' .. tostring(got) .. ' to ' .. token) end
end
local big = ('x'):rep(70000)
"""

Node = tuple[object, ...]
Tokens = Callable[[], int]

SIMPLE: st.SearchStrategy[Node] = st.sampled_from(
    [
        ("wait",),
        ("wait",),
        ("wait big",),
        ("log",),
        ("error",),
        *((what, name) for what in ("lock", "unlock") for name in LOCKS),
    ]
)


def combined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, min_size=1, max_size=4)
    times = st.sampled_from([0.5, 1.0, 2.5])
    return st.one_of(
        st.tuples(st.just("parallel"), several),
        st.tuples(st.just("map"), several, st.integers(1, 3)),
        st.tuples(st.just("group"), several, st.booleans(), st.none() | times),
        st.tuples(st.just("timed"), inner, times),
        st.tuples(st.just("pcall"), inner),
        st.tuples(st.just("coroutine"), inner),
        st.tuples(st.just("several"), several),
    )


PROGRAMS = st.recursive(SIMPLE, combined, max_leaves=14)


def render(node: Node, tokens: Tokens) -> str:
    """The Lua of a node: statements."""
    what, *given = node
    match what:
        case "wait":
            return f"w({tokens()})"
        case "wait big":
            return f"w({tokens()}, big)"
        case "log":
            return "log('here') local n = 0 for i = 1, 50 do n = n + i end"
        case "error":
            return f"error('boom {tokens()}', 0)"
        case "lock" | "unlock":
            return f"{what}('{given[0]}', {tokens()})"
        case _:
            return COMBINED[str(what)](tokens, *given)


def function(node: object, tokens: Tokens) -> str:
    return f"function() {render(cast(Node, node), tokens)} end"


def functions(nodes: object, tokens: Tokens) -> list[str]:
    return [function(node, tokens) for node in cast("list[Node]", nodes)]


def render_group(tokens: Tokens, nodes: object, is_awaited: object, seconds: object) -> str:
    launched = " ".join(f"g:launch({each}, {seconds or 'nil'})" for each in functions(nodes, tokens))
    waits = f"while g:next() do w({tokens()}) end" if is_awaited else f"w({tokens()})"
    return f"do local g = group() {launched} {waits} end"


COMBINED: dict[str, Callable[..., str]] = {
    "pcall": lambda tokens, node: f"pcall({function(node, tokens)})",
    "coroutine": lambda tokens, node: f"coroutine.wrap({function(node, tokens)})()",
    "timed": lambda tokens, node, seconds: f"pcall(timed, {seconds}, {function(node, tokens)})",
    "parallel": lambda tokens, nodes: f"parallel({', '.join(functions(nodes, tokens))})",
    "map": lambda tokens, nodes, limit: (
        f"parallel_map({{{', '.join(functions(nodes, tokens))}}}, function(f) f() end, {limit})"
    ),
    "group": render_group,
    "several": lambda tokens, nodes: " ".join(f"do {render(node, tokens)} end" for node in nodes),
}


@dataclass(eq=False)
class PendingOp:
    lineage: Lineage
    future: Future[Results]
    token: object
    lock: bytes | None = None  # which it waits for


@dataclass
class LockingHost:
    """Ops that wait until the test answers them, and locks of branches."""

    pending: list[PendingOp] = field(default_factory=list)
    held: dict[bytes, int] = field(default_factory=dict)  # lock → branch
    ended: set[int] = field(default_factory=set)  # branches whose end has been heard of
    mistakes: list[object] = field(default_factory=list)

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Future[Results]:
        future: Future[Results] = asyncio.get_running_loop().create_future()
        owner = lineage[0] if lineage else 0
        if not self.ended.isdisjoint(lineage):
            self.mistakes.append(f"{name} of {lineage}, which has ended")
        if name == "wait":
            self.pending.append(PendingOp(lineage, future, arguments[0]))
        elif name == "lock":
            self.pending.append(PendingOp(lineage, future, arguments[1], cast(bytes, arguments[0])))
        elif name == "unlock":
            if self.held.get(cast(bytes, arguments[0])) == owner:
                del self.held[cast(bytes, arguments[0])]
            future.set_result(())
        else:
            self.mistakes.append(arguments)
            future.set_result(())
        self.serve()
        return future

    def end_branch(self, lineage: Lineage) -> None:
        self.held = {name: owner for name, owner in self.held.items() if owner != lineage[0]}
        self.serve()

    def log(self, level: str, text: bytes) -> None: ...

    def serve(self) -> None:
        """Forget what was cancelled, and give locks to those that wait, in order."""
        self.pending = [op for op in self.pending if not op.future.done()]
        for op in self.pending:
            if op.lock is not None and op.lock not in self.held:
                self.held[op.lock] = op.lineage[0] if op.lineage else 0
                op.future.set_result((op.token,))


@dataclass
class QueuedConnection(WorkerConnection):
    sent: deque[Message] = field(default_factory=deque)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def send_bulk(self, message: Message) -> None:
        self.sent.append(message)


class BranchesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.worker = InlineWorker(BYTECODE, ["wait", "lock", "unlock", "echo"])
        self.main: deque[FromWorker] = deque()
        self.bulk: deque[FromWorker] = deque()
        self.worker.on_message = lambda message, is_bulk: (self.bulk if is_bulk else self.main).append(message)
        self.host = LockingHost()
        self.connection = QueuedConnection()
        self.clock = FakeClock()
        self.ended: set[int] = set()  # branches, as the worker has told
        self.parents: dict[int, int] = {}
        self.asking: dict[int, int] = {}  # branch → number of the op that it waits for
        self.injected: list[int] = []
        self.is_over = False

    @initialize(program=PROGRAMS, injected=st.lists(st.integers(0, 8), max_size=6))
    def begin(self, program: Node, injected: list[int]) -> None:
        numbers = count(1)
        self.injected = injected
        self.worker.on_line = lambda _: self.inject()
        source = PRELUDE + render(program, lambda: next(numbers))
        self.loop.run_until_complete(self.open())
        self.watch()
        self.worker.begin(source)
        self.turn()

    async def open(self) -> None:
        code = Code(job=JobId("x"), generation=1, chunk="jobs/x.lua", source=b"")
        request = Request(run=RunId(1), code=code, timeout_ms=10**9, cpu_limit_ms=10**6)
        future = self.loop.create_future()
        pending = PendingRun(request=request, host=self.host, ending=future)
        tasks = TaskGroup()
        await tasks.__aenter__()
        self.tasks = tasks
        self.channel = RunChannel(
            pending, 1, connection=self.connection, clock=self.clock, tasks=tasks, overdue=lambda _: None
        )

    def watch(self) -> None:
        """Check what the worker says in the order in which it says it."""
        queued = self.worker.on_message

        def check(message: FromWorker, is_bulk: bool) -> None:
            if isinstance(message, OpCall | PackedOpCall):
                branch = message.branch
                assert self.ended.isdisjoint(self.around(branch)), "an op of a branch that has ended"
                assert branch not in self.asking, "a second op of a branch that waits"
                self.asking[branch] = message.number
            elif isinstance(message, BranchEnded):
                assert message.branch not in self.ended, "a branch ends twice"
                self.ended.add(message.branch)
                self.asking.pop(message.branch, None)
            elif isinstance(message, BranchBegan):
                self.parents[message.branch] = message.parent
                assert self.ended.isdisjoint(self.around(message.branch))
            queued(message, is_bulk)

        self.worker.on_message = check

    def around(self, branch: int) -> list[int]:
        """The branch, and those that it is in, as far as they are known."""
        lineage = [branch]
        while self.parents.get(lineage[-1]):
            lineage.append(self.parents[lineage[-1]])
        return lineage

    def inject(self) -> None:
        """While a script is in `log`: another thread of the worker reads a message."""
        if not self.injected:
            return
        what, branch = self.injected.pop(0), self.worker.registry.runs[1].branch
        if what == 1:
            self.channel.cancel(Why.CANCELLED)
            while self.connection.sent:
                self.to_worker()
        elif what > 5:
            self.worker.say(wire.EndBranch(1, what - 5))
        elif what > 1 and branch:  # the one that is stepped, or one that it is in
            lineage = self.around(branch)
            self.worker.say(wire.EndBranch(1, lineage[(what - 2) % len(lineage)]))

    # What the two sides hear

    def to_daemon(self, queue: deque[FromWorker]) -> None:
        message = queue.popleft()
        if self.is_over:
            return
        match message:
            case OpCall():
                slot = self.channel.slot_for(message)
                if slot is not None:
                    slot.ask(message)
            case BranchBegan():
                self.channel.branch_began(message)
            case BranchEnded():
                self.host.ended.add(message.branch)
                self.channel.branch_ended(message)
            case wire.RunEnd():
                self.channel.close()
                self.is_over = True
                self.host.held = {name: owner for name, owner in self.host.held.items() if owner != 0}

    def to_worker(self) -> None:
        message = self.connection.sent.popleft()
        if isinstance(message, wire.ResumeRun):
            self.asking = {branch: number for branch, number in self.asking.items() if number != message.number}
        self.worker.say(cast(wire.ToWorker, message))

    def turn(self) -> None:
        async def turn() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turn())

    def in_loop(self, act: Callable[[], object]) -> None:
        async def do() -> None:
            act()

        self.loop.run_until_complete(do())
        self.turn()

    # What happens

    @precondition(lambda self: self.main)
    @rule(how_many=st.integers(1, 5))
    def the_daemon_reads(self, how_many: int) -> None:
        for _ in range(min(how_many, len(self.main))):
            self.in_loop(lambda: self.to_daemon(self.main))

    @precondition(lambda self: self.bulk)
    @rule()
    def the_daemon_reads_a_big_one(self) -> None:
        self.in_loop(lambda: self.to_daemon(self.bulk))

    @precondition(lambda self: self.connection.sent)
    @rule(how_many=st.integers(1, 5))
    def the_worker_reads(self, how_many: int) -> None:
        for _ in range(min(how_many, len(self.connection.sent))):
            self.to_worker()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def an_op_is_answered(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.sampled_from(self.waiting)))

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.loop.run_until_complete(self.clock.turn(seconds))

    @precondition(lambda self: not self.is_over)
    @rule(dice=st.integers(0, 15))
    def it_is_cancelled(self, dice: int) -> None:
        if dice == 0:
            self.in_loop(lambda: self.channel.cancel(Why.CANCELLED))

    @property
    def waiting(self) -> list[PendingOp]:
        return [op for op in self.host.pending if op.lock is None and not op.future.done()]

    def answer(self, op: PendingOp) -> None:
        self.in_loop(lambda: op.future.set_result((op.token,)))
        self.host.serve()

    # What always holds

    @invariant()
    def no_op_is_answered_to_the_wrong_branch(self) -> None:
        assert self.host.mistakes == []

    @invariant()
    def nobody_but_a_living_branch_is_waited_for(self) -> None:
        if self.main or self.bulk or self.is_over or self.channel.why:
            return
        for op in self.host.pending:
            assert not op.lineage or op.lineage[0] not in self.ended or op.future.done()

    def teardown(self) -> None:
        try:
            if hasattr(self, "channel"):
                self.let_it_end()
                self.check_the_end()
        finally:
            self.loop.run_until_complete(self.close())
            self.loop.close()

    def let_it_end(self) -> None:
        for _ in range(500):
            if self.is_over:
                break
            if self.main:
                self.in_loop(lambda: self.to_daemon(self.main))
            elif self.bulk:
                self.in_loop(lambda: self.to_daemon(self.bulk))
            elif self.connection.sent:
                self.to_worker()
            elif self.waiting:
                self.answer(self.waiting[0])
            elif self.host.pending:  # for each other's locks
                self.in_loop(lambda: self.channel.cancel(Why.CANCELLED))
            else:
                raise AssertionError("the run waits for nothing")
        assert self.is_over, "it does not end"

    def check_the_end(self) -> None:
        self.turn()
        self.host.serve()
        assert (self.host.held, self.host.pending, self.host.mistakes) == ({}, [], [])
        assert not self.clock.pending
        assert not self.worker.registry.runs
        assert self.parents.keys() <= self.ended, "a branch that has begun for the daemon has not ended for it"
        if self.worker.end and not self.worker.end.discarded:  # its VM goes on
            self.worker.on_message, self.injected = lambda _message, _is_bulk: None, []
            self.worker.say(wire.BeginRun(2, 1, "run", wire.pack([{"job": "x"}, False]), 10_000))
            self.worker.say(wire.CancelRun(2, int(Why.CANCELLED)))
            assert not self.worker.registry.runs

    async def close(self) -> None:
        if hasattr(self, "tasks"):
            await self.tasks.__aexit__(None, None, None)


TestBranches = BranchesMachine.TestCase
TestBranches.settings = settings(suppress_health_check=list(HealthCheck))
