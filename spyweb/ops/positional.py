"""One call of a function of `state`, of either form, and what makes it an op that is timed and counted.

A positional call that fails returns the function's failure value and a text; a table-first one raises iii's
{code, message}.  In both an argument of the wrong type raises, and a failure of the store if the settings say so.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Annotated, Concatenate, ParamSpec, Self, TypeVar, cast

from spyweb.errors import OpError, StoreError, TooLarge
from spyweb.lua import wire
from spyweb.lua.session import Results, StoreAnswer, Unstarted
from spyweb.model import NULL, Value
from spyweb.ops.arguments import ArgumentReader, Mismatch, read_table, read_text, type_name
from spyweb.ops.op import READ_STATE, WRITE_STATE, Need, OpEffect, op
from spyweb.ops.rules.values import Unstorable, expiry_of, prepared, shown, size_of, value_from_lua
from spyweb.ops.store import count_failure, raise_if_wanted
from spyweb.ops.world import Call
from spyweb.store.model.entries import Entry, Keep, Leave, Put, Transform
from spyweb.store.patterns import excess

P = ParamSpec("P")
T = TypeVar("T")

CONVERTED_AT_ONCE = 65_536  # bytes of packed arguments; larger ones are converted in a thread
MALFORMED, TOO_LARGE = "deserialization_error", "VALUE_TOO_LARGE"  # iii's codes for any function
_TABLES = frozenset({list, dict})
_VALUES = frozenset({b"value", b"data"})  # fields

Fields = Mapping[object, object]  # the one table of a table-first call


def read_key(value: object) -> bytes | Fields:
    """Read a text, or the table of a table-first call."""
    if isinstance(value, bytes):
        return value
    return read_table(value) if type_name(value) == "table" else read_text(value)


KeyOrTable = Annotated[bytes | Fields, ArgumentReader("string", "string", read_key)]


class CallRefused(Exception):
    """The call can't be carried out; the text is the reason."""


class StateCall:
    """One call of a function of `state`.

    Where a method, or the function itself, raises CallRefused, Unstorable or (of a table-first call) Mismatch, the
    script gets that as its form has it.
    """

    key = b""
    code = ""  # iii's for a failure of this function; empty: the call is positional

    def __init__(self, call: Call, function: str, failure: object) -> None:
        self.call = call
        self.function = function
        self.failure = failure
        self.values = call.values
        self.namespace = call.state_namespace
        self.largest = call.memory_limit  # bytes of an answer: more would not fit into the VM
        self._began = call.world.clock.monotonic()

    def about(self, key: bytes) -> Self:
        """Note the key that the call is about."""
        self.key = self.short("key", key)
        return self

    def short(self, what: str, text: bytes) -> bytes:
        """Check the length of a key or a name."""
        limit = self.call.world.state.max_key_bytes
        if len(text) > limit:
            raise CallRefused(f"{what} '{shown(text)}': {len(text)} bytes are over the limit of {limit}")
        return text

    def pattern(self, pattern: bytes) -> bytes:
        if (reason := excess(pattern)) is not None:
            raise CallRefused(reason)
        return pattern

    def item(self, given: object, position: int) -> Value:
        """Convert a value to store inside a table.  Raises OpError for nil."""
        if given is None:
            raise OpError(f"bad argument #{position} to '{self.function}' (value expected, got nil)")
        return value_from_lua(given)

    def value(self, given: object, position: int) -> Value:
        """Convert a value to store under a key.  Raises OpError for nil."""
        value = self.item(given, position)
        if value is NULL:
            raise Unstorable("JSON's null can only be kept inside a table")
        return value

    def expiry(self, ttl: float | None) -> int | None:
        """Return when a value expires that is written now; a lifetime of zero or less is noted in the job's log."""
        if ttl is not None and ttl <= 0:
            self.call.log("warn", f"{self.function}: with a ttl of {ttl:g} the value expires at once".encode())
        return expiry_of(ttl, self.call.world.clock.now_ms())

    def put(self, value: Value, expires_ms: int | Keep | None, *results: object) -> Put | Leave:
        """Decide on a write: a value that is too large is refused."""
        size, limit = size_of(value), self.call.world.state.max_value_bytes
        if size > limit:
            return self.leave(f"the value of {size} bytes is over the limit of {limit}", TOO_LARGE)
        return Put(value, expires_ms, results)

    def leave(self, reason: str, code: str = "") -> Leave:
        return Leave(self.refusal(self.of_key(reason), code))

    def of_key(self, reason: str) -> str:
        return f"key '{shown(self.key)}': {reason}"

    def refusal(self, reason: str, code: str = "") -> Results:
        """Return the results of a call that is refused; raises OpError in the form of a table-first one."""
        message = f"{self.function}: {reason}"
        if self.code:
            raise OpError(message, value={"code": code or self.code, "message": message})
        return self.failure, message

    def failed(self, error: Exception) -> Results:
        """Return the script's results for an exception of its call."""
        match error:
            case TooLarge():
                return self.refusal(f"{error}, which is this job's memory limit")
            case StoreError():
                count_failure(self.call, self.function, error)
                return self.refusal(str(error))
            case Unstorable():
                return self.refusal(self.of_key(str(error)), MALFORMED)
            case Mismatch():
                return self.refusal(str(error), MALFORMED)
            case _:
                return self.refusal(str(error))

    async def caught(
        self, handler: Callable[..., Awaitable[Results]], arguments: Sequence[object], *, are_large: bool = False
    ) -> Results:
        try:
            if are_large:
                arguments = await asyncio.to_thread(_prepare, arguments)
            return await handler(self, *arguments)
        except (*_REFUSALS, StoreError) as error:
            return self.failed(error)

    def change(self, transform: Transform) -> StoreAnswer[object]:
        """Apply a transform to the key; the script gets its result."""
        source = self.values.transform(self.namespace, self.key, transform, origin=self.call.origin)
        return self.answer(source, lambda results: cast("Results", results))

    def read(self, results: Callable[[Entry | None], Results]) -> StoreAnswer[Entry | None]:
        return self.answer(self.values.read(self.namespace, self.key), results)

    def answer(self, source: Future[T], results: Callable[[T], Results]) -> StoreAnswer[T]:
        """Turn the store's answer into the script's results."""

        def results_of(source: Future[T]) -> Results:
            world = self.call.world
            world.metrics.state.times.observe(world.clock.monotonic() - self._began)
            try:
                return results(source.result())
            except StoreError as error:
                refusal = self.failed(error)
                if not isinstance(error, TooLarge):
                    raise_if_wanted(self.call, self.function, error)
                return refusal

        return StoreAnswer(source, results_of)


_REFUSALS = (CallRefused, Unstorable, Mismatch)


def one(result: object) -> Results:
    return (result,)


def positional(
    name: str,
    *,
    failure: object,
    needs: Need = READ_STATE,
    effect: OpEffect | None = None,
    types: str,
    overloads: tuple[str, ...] = (),
) -> Callable[
    [Callable[Concatenate[StateCall, P], Awaitable[Results]]], Callable[Concatenate[Call, P], Awaitable[Results]]
]:
    """Make an op of a function; `needs`, `effect`, `types` and `overloads` are those of `op`.

    One that is no `async def` makes a single request to the store: only such are timed and counted.
    """

    def decorate(
        handler: Callable[Concatenate[StateCall, P], Awaitable[Results]],
    ) -> Callable[Concatenate[Call, P], Awaitable[Results]]:
        @op(name=name, needs=needs, effect=effect, types=types, overloads=overloads)
        @wraps(handler)
        def begin(call: Call, /, *arguments: P.args, **named: P.kwargs) -> Awaitable[Results]:
            state = StateCall(call, name, failure)
            if iscoroutinefunction(handler):
                return Unstarted(partial(state.caught, handler, arguments))
            metrics = call.world.metrics.state
            metrics.writes += needs is WRITE_STATE
            metrics.reads += needs is not WRITE_STATE
            # Converting large tables would block the loop: they may have hundreds of thousands of values.
            if not _TABLES.isdisjoint(map(type, arguments)) and len(wire.pack(arguments)) > CONVERTED_AT_ONCE:
                return Unstarted(partial(state.caught, handler, arguments, are_large=True))
            try:
                return handler(state, *arguments, **named)
            except _REFUSALS as error:
                refused: Future[Results] = asyncio.get_running_loop().create_future()
                refused.set_result(state.failed(error))
                return refused

        return begin

    return decorate


writing = partial(positional, needs=WRITE_STATE)  # of a function that writes


def _prepare(arguments: Sequence[object]) -> list[object]:
    """Convert the values to store: those of a positional call, or those in the table of a table-first call.

    Never raises: errors show when they are read.
    """
    first, *others = arguments
    return [_prepare_fields(first) if isinstance(first, dict) else first, *map(prepared, others)]


def _prepare_fields(fields: Fields) -> dict[object, object]:
    made = {name: prepared(given) if name in _VALUES else given for name, given in fields.items()}
    if isinstance(ops := made.get(b"ops"), list):
        made[b"ops"] = [_prepare_fields(each) if type(each) is dict else each for each in ops]
    return made
