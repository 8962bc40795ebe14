"""A worker's message handler, executor and VMs as they are, in one thread: whatever the daemon says is done at once.

Scripts also have what only files of ours have: `timed`, `attempt` and `group`, of branches.lua.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form, FromWorker, Message, ToWorker, Why
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.executor import Executor, ThreadState
from spyweb.lua.worker.link import Sender
from spyweb.lua.worker.message_handler import MessageHandler
from spyweb.lua.worker.runs import Registry
from spyweb.lua.worker.vm import Bytecode, Function, new_runtime

OPS = ("wait", "echo", "sleep", "_require")
OURS = b"""
local runtime, internals = ...
for _, name in ipairs({ "timed", "attempt", "group" }) do
  runtime.env[name] = function(...) return runtime.use("branches")[name](...) end
end
return runtime.part("run_itself")(runtime, internals)
"""


def with_ours(bytecode: Bytecode) -> Bytecode:
    dump: Function = new_runtime().execute("return function(text) return string.dump(load(text), true) end")
    return bytecode | {"run": dump(OURS.replace(b"ipairs", b"runtime.raw.ipairs")), "run_itself": bytecode["run"]}


Told = TypeVar("Told", bound=Message)


class TellingSender(Sender):
    """Tells of a message when it is posted, and whether it takes the second socket."""

    def __init__(self, tell: Callable[[FromWorker, bool], None]) -> None:
        self._tell = tell
        self.flushed = float("inf")

    def post(self, message: Message) -> None:
        self._tell(cast(FromWorker, message), False)

    def post_bulk(self, message: Message) -> None:
        self._tell(cast(FromWorker, message), True)

    @property
    def waiting(self) -> int:
        return 0

    def flush(self) -> None: ...


class InlineWorker:
    """`heard` is what the daemon has been told, `open` the ops that are not answered, by their first argument.

    A line that is logged is passed to `on_line` while the script waits in `log`, and each message to `on_message`, with
    whether it takes the second socket.
    """

    def __init__(self, bytecode: Bytecode, ops: Sequence[str] = OPS) -> None:
        self.registry = Registry()
        self.heard: list[Message] = []
        self.open: dict[object, wire.OpCall] = {}
        self.lines: list[str] = []
        self.on_line: Callable[[str], None] = lambda _line: None
        self.on_message: Callable[[FromWorker, bool], None] = lambda _message, _is_bulk: None
        sender = TellingSender(self._tell)
        console = Console(sender)
        self._handler = MessageHandler(self.registry, sender, console, with_ours(bytecode))
        self._executor = Executor(self.registry, sender, memoryview(bytearray(wire.SLOT_BYTES)).cast("Q"))
        self._console = console
        self.say(wire.InitWorker(list(ops), {}))

    def say(self, message: ToWorker) -> None:
        """Have the worker handle a message of the daemon, and do what follows."""
        task = self._handler.receive(message)
        while task is not None:
            task = self._executor.perform(task, ThreadState(ident=0, slot=0, cpu=0.0))

    def begin(self, source: str, *, run: int = 1, vm: int = 1, limit: int = 16 << 20) -> None:
        self.say(wire.LoadVm(vm, [("jobs/x.lua", source.encode())], limit))
        loaded = self.told(wire.VmLoaded)[-1]
        assert loaded.reason is None, loaded.reason
        self.say(wire.BeginRun(run, vm, "run", wire.pack([{"job": "x"}, False]), 10_000))

    def answer(self, argument: object, *results: wire.Scalar) -> None:
        """Answer the op whose first argument this is."""
        call = self.open.pop(argument)
        self.say(wire.ResumeRun(call.run, call.number, int(Form.PLAIN), list(results)))

    def end_branch(self, branch: int, *, run: int = 1) -> None:
        self.say(wire.EndBranch(run, branch))

    def cancel(self, why: Why = Why.CANCELLED, *, run: int = 1) -> None:
        self.say(wire.CancelRun(run, int(why)))

    @property
    def end(self) -> wire.RunEnd | None:
        """The end of the run, once it has ended."""
        ends = self.told(wire.RunEnd)
        return ends[-1] if ends else None

    @property
    def result(self) -> list[object]:
        """The results of a run that has succeeded."""
        end = self.end
        assert end is not None, f"it waits for {list(self.open)}"
        assert end.ended == Ended.SUCCESS, end
        return wire.unpack(end.result or b"\x90")

    @property
    def reason(self) -> str:
        end = self.end
        assert end is not None, f"it waits for {list(self.open)}"
        return end.reason.decode()

    def told(self, kind: type[Told]) -> list[Told]:
        return [message for message in self.heard if isinstance(message, kind)]

    def _tell(self, message: FromWorker, is_bulk: bool) -> None:
        if isinstance(message, wire.ScriptLog):
            self._console.give(1)
            line = message.text.decode()
            self.lines.append(line)
            self.on_line(line)
            return
        self.heard.append(message)
        self.on_message(message, is_bulk)
        if isinstance(message, wire.OpCall):
            self.open[message.values[0] if message.values else None] = message
