"""One VM: a Lua state with our prelude in it.  The only importer of lupa.

Rules that keep lupa from ending the process: nothing but scalars is pushed, never more than there is memory for; no Lua
table is ever touched from Python; what Lua calls back takes and returns numbers and bytes and never raises; a VM is
used by one thread at a time, except `used`, which reads a number.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, cast

from lupa import lua54

from spyweb.lua import wire
from spyweb.lua.worker.crypto import compute

Function = Callable[..., Any]  # a Lua function, as lupa shows it
Passed = Any  # what Lua passes to a function of ours: a scalar

_FOLDERS = [os.path.join(os.path.dirname(__file__), name) for name in ("runtime", "library")]
LIBRARY = str(lua54.__file__)  # the shared object that Lua lives in
LuaError = lua54.LuaError

OUT_OF_MEMORY = "not enough memory"  # Lua's own text, and the prelude's
MARGIN = 4096  # bytes that a call into a VM may need besides its values
LAST_WORDS = 1 << 20  # bytes that a VM may take over its limit once its run has ended for lack of memory
# What the prelude's `control` does.
_KILL, _EMPTY, _COLLECT, _TURN, _NEXT = b"kill", b"empty", b"collect", b"turn", b"next"
# What Lua calls for, besides texts.
_WHY, _EMIT, _CLOCK, _SEED, _OVER, _BEGAN, _ENDED, _COMPUTE, _TIME, _RANDOM = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
_SMALL = 1 << 20  # bytes; less is freed quickly enough with the lock held
_BUNDLES = {"lasting": ("codec",), "fleeting": ("codec", "server")}  # preludes, with what is sure to be used
# There is hardly any garbage while the prelude loads, which turns the collector on again.  In a VM for a single run the
# collector starts later, after more has been allocated.
_STOP_COLLECTION, _PUT_OFF_COLLECTION = 'collectgarbage("stop")', 'collectgarbage("step", -256)'
_COROUTINE_COUNT = 10_000  # instructions between two checks, by a coroutine's own hook, whether its run must end

Bytecode = dict[str, bytes]


class StepKind(IntEnum):
    """The kinds of result that a step of a run can have: a tuple of scalars, of which this is the first."""

    OP = 0  # name, Form, value...
    END = 1  # Ended, reason, traceback, packed result or None, is its VM discarded, or the result as a scalar
    AFTERMATH = 2  # address of a new coroutine, Ended: start it, with a budget of its own
    STARVED = 3  # it ended for lack of memory: give it room and start it, to say where
    SEQUEL = 4  # address of a new coroutine: start it, on the budget of the run
    TURN = 5  # branch, address of its coroutine, has the run no other branch: go on with that one
    WAIT = 6  # all branches wait


class Runtime(Protocol):
    """The part of lupa's LuaRuntime that we use; its types are published for older versions only."""

    def execute(self, code: str | bytes, *arguments: object, mode: str | None = None) -> Any: ...

    def get_memory_used(self, total: bool = False) -> int: ...

    def set_max_memory(self, limit: int) -> None: ...


class VmInit(NamedTuple):
    """The facts that every VM is given, encoded for its prelude."""

    ops: bytes  # their names, each between two line feeds
    facts: bytes  # packed
    variables: bytes = wire.NO_VARIABLES  # of one VM, packed


def init_of(message: Mapping[str, object]) -> VmInit:
    """Return the facts for VMs that are in the daemon's first message."""
    ops = "".join(f"{name}\n" for name in cast("list[str]", message["ops"]))
    return VmInit(f"\n{ops}".encode(), wire.pack([{"engine": message["engine"]}]))


class Callbacks(Protocol):
    """The functions that a VM may call.  None of these may raise."""

    def why(self) -> int:
        """Return why the run being stepped must end (wire.Why)."""

    def emit(self, level: bytes, text: bytes) -> int:
        """Take a log line; return `why`."""

    def overdue_branch(self, index: int) -> int:
        """Return a branch whose time is up, the first, second, ...; 0: take the first away.  Returns 0 for none."""

    def branch_began(self, branch: int, parent: int, timeout_ms: int) -> None: ...

    def read(self, what: int, ask: Callable[[], wire.Read]) -> wire.Read:
        """Return what is read of a clock or of chance, by its purpose: of a run that is replayed what it read then."""

    def branch_ended(self, branch: int, number: int) -> None:
        """Hear of the end of a branch, and the number of its last op."""


def _deny(*_: object) -> object:
    raise AttributeError("Python objects have no attributes here")


_new_runtime = cast("Callable[..., Runtime]", lua54.LuaRuntime)


def new_runtime(limit: int | None = None) -> Runtime:
    return _new_runtime(
        register_eval=False,
        register_builtins=False,
        unpack_returned_tuples=True,
        max_memory=limit,
        encoding=None,
        source_encoding="utf-8",
        attribute_handlers=(_deny, _deny),
    )


def compile_lua_files() -> Bytecode:
    """Compile all Lua files of the worker to stripped bytecode, by their names without folder and suffix."""
    dump: Function = new_runtime().execute(
        "return function(source, name) return string.dump(assert(load(source, name)), true) end"
    )
    texts = {}
    for folder in _FOLDERS:
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                texts[name.removesuffix(".lua")] = file.read()
    prelude = texts.pop("prelude")
    for kind, names in _BUNDLES.items():  # the prelude, with these files in its table `bundled`
        functions = [b"%s = function(...)\n%s\nend," % (name.encode(), texts[name]) for name in names]
        texts[kind] = b"local bundled = {%s}\n%s" % (b"\n".join(functions), prelude)
    return {name: dump(text, b"@%s.lua" % name.encode()) for name, text in texts.items()}


def compile_to_bytecode(files: Sequence[tuple[str, bytes]]) -> list[bytes] | None:
    """Compile files with their lines, for errors; return None if one does not compile: a VM will report why."""
    dump: Function = new_runtime().execute(
        "return function(source, name) local f = load(source, name, 't') return f and string.dump(f) end"
    )
    made = [dump(source, b"@" + name.encode()) for name, source in files]
    return made if all(made) else None


class VM:
    """The Lua state of one script.  A call into it that fails raises LuaError, or lupa's own MemoryError."""

    def __init__(
        self,
        bytecode: Bytecode,
        init: VmInit,
        limit: int,
        callbacks: Callbacks,
        *,
        main_count: int,
        is_fleeting: bool = False,  # for a single run: not worth tidying up
    ) -> None:
        self._limit = limit
        self._is_fleeting = is_fleeting
        self._stretched = 0  # bytes over the limit that it may have for now
        self._bytecode = bytecode
        self._init = init
        self._callbacks = callbacks
        self._runtime: Runtime | None = new_runtime(limit)
        self._runtime.execute(_PUT_OFF_COLLECTION if is_fleeting else _STOP_COLLECTION)
        functions: tuple[Function, ...] = self._runtime.execute(
            bytecode["fleeting" if is_fleeting else "lasting"],
            self._called,
            main_count,
            _COROUTINE_COUNT,
            is_fleeting,
            mode="b",
        )
        self._compile, self._begin, self._step, self._control = functions

    def compile(self, name: bytes, source: bytes) -> bytes | None:
        """Compile a file into the VM; return the reason if it does not compile."""
        message = self._compile(source, name)
        return message if isinstance(message, bytes) else None

    def add(self, bytecode: bytes) -> None:
        """Add a file that `compile_to_bytecode` has compiled, which takes less time than `compile`."""
        self._compile(bytecode)

    def begin(self, run: int, procedure: str, arguments: bytes) -> bytes:
        """Make the run's coroutine, which `start` starts, and return its address."""
        pointer: bytes = self._begin(run, procedure.encode(), arguments)
        return pointer

    def start(self, run: int) -> tuple[object, ...]:
        return _checked(self._step(run))

    def step(self, run: int, form: int, values: Sequence[object]) -> tuple[object, ...]:
        return _checked(self._step(run, form, *values))

    def kill(self, run: int, why: int) -> tuple[object, ...]:
        """End a run that waits for an op."""
        return _checked(self._control(_KILL, run, why))

    def turn(self, run: int, number: int) -> tuple[object, ...]:
        """Turn to the branch that waits for the op of this number: `step` then goes on with it."""
        return _checked(self._control(_TURN, run, number))

    def next(self, run: int, number: int) -> tuple[object, ...]:
        """Turn to the next branch that can run; this one waits for its op of that number (0: for none)."""
        return _checked(self._control(_NEXT, run, number))

    @property
    def used(self) -> int:
        """Return the bytes in use, including what every VM has.  Any thread may call this."""
        runtime = self._runtime
        return int(runtime.get_memory_used(total=True)) if runtime else 0

    def has_room(self, size: int) -> bool:
        """Return whether a push of this size fits: one that does not would end the process.  May collect garbage."""
        runtime = self._runtime
        assert runtime is not None
        if runtime.get_memory_used() + size + MARGIN <= self._limit + self._stretched:
            return True
        self.stretch()
        self._control(_COLLECT)
        self._stretched = 0
        runtime.set_max_memory(self._limit)
        return runtime.get_memory_used() + size + MARGIN <= self._limit

    def stretch(self) -> None:
        """Raise the memory limit for what follows a run that ended for lack of memory."""
        if self._runtime:
            self._stretched = LAST_WORDS
            self._runtime.set_max_memory(self._limit + LAST_WORDS)

    def close(self) -> None:
        """Free the VM, most of it in Lua, which holds up no other thread.  Its memory is counted until it is freed."""
        if self._runtime is None:
            return
        if not self._is_fleeting or self._runtime.get_memory_used() > _SMALL:
            with contextlib.suppress(LuaError, MemoryError):  # what is left goes with the runtime
                self._control(_EMPTY)
        self._runtime = None
        self._compile = self._begin = self._step = self._control = _deny

    def _called(self, what: int | bytes, *given: Passed) -> bytes | float:
        """Carry out a call from Lua.  It is the only function of ours in a VM, since each takes memory there."""
        if what == _WHY:
            return self._callbacks.why()
        if what == _EMIT:
            return self._callbacks.emit(*given)
        if (ask := _READERS.get(what)) is not None:
            return self._callbacks.read(cast("int", what), ask)
        if what == _OVER:
            return self._callbacks.overdue_branch(*given)
        if what == _BEGAN:
            self._callbacks.branch_began(*given)
            return 0
        if what == _ENDED:
            self._callbacks.branch_ended(*given)
            return 0
        return self._or_nothing(self._computed(what, given))

    def _computed(self, what: int | bytes, given: Sequence[Passed]) -> bytes | int:
        if what == _COMPUTE:
            return compute(*given)
        if what == _RANDOM:
            return cast("bytes", self._callbacks.read(_RANDOM, lambda: compute(*given)))
        return self._text(cast("bytes", what).decode())

    def _text(self, name: str) -> bytes:
        """Return one of our Lua files, or a fact for every VM."""
        code: bytes = getattr(self._init, name) if name in VmInit._fields else self._bytecode[name]
        return code

    def _or_nothing(self, value: bytes | int) -> bytes | int:
        """Return the value, or 0 if there is no room for it."""
        runtime = self._runtime
        size = len(value) if isinstance(value, bytes) else 0
        if runtime is None or runtime.get_memory_used() + size + MARGIN > self._limit + self._stretched:
            return 0
        return value


_READERS: Mapping[int | bytes, Callable[[], wire.Read]] = {
    _CLOCK: time.monotonic,
    _SEED: lambda: int.from_bytes(os.urandom(8), "little", signed=True),
    _TIME: lambda: int(time.time()),
}


def _checked(result: object) -> tuple[object, ...]:
    if type(result) is tuple and len(result) > 1:
        return result
    raise LuaError(f"a step returned no result: {result!r:.200}")
