"""Make ops of the positional functions of `state`, which are timed and counted, and return failures.

A failure returns the function's failure value and a text.  Only an argument of the wrong type raises, and a failure of
the store if the settings say so.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from spyweb.errors import OpError, StoreError, TooLarge
from spyweb.lua import wire
from spyweb.lua.session import Results, StoreAnswer, Unstarted
from spyweb.model import NULL, Value
from spyweb.ops.arguments import ArgumentReader, read_table, read_text, type_name
from spyweb.ops.op import READ_STATE, WRITE_STATE, Need, OpEffect, op
from spyweb.ops.rules.sloth import Subject
from spyweb.ops.rules.values import Unstorable, expiry_of, prepared, value_from_lua
from spyweb.ops.store import count_failure, raise_if_wanted
from spyweb.ops.world import Call
from spyweb.store.model.entries import Entry, Transform
from spyweb.store.patterns import excess

P = ParamSpec("P")
T = TypeVar("T")

CONVERTED_AT_ONCE = 65_536  # bytes of packed arguments; larger ones are converted in a thread
_TABLES = frozenset({list, dict})
_VALUES = frozenset({b"value", b"data"})  # fields

Fields = Mapping[object, object]  # the one table of a table-first call


def read_key(value: object) -> bytes | Fields:
    """Read a text, or the table of a table-first call."""
    if isinstance(value, bytes):
        return value
    return read_table(value) if type_name(value) == "table" else read_text(value)


KeyOrTable = Annotated[bytes | Fields, ArgumentReader("string", "string", read_key)]


class CallFailed(Exception):
    """The call ends with these results."""

    def __init__(self, results: Results) -> None:
        super().__init__()
        self.results = results


class PositionalCall:
    """One call of a positional function."""

    def __init__(self, call: Call, function: str, failure: object) -> None:
        self.call = call
        self.function = function
        self.failure = failure
        self._began = call.world.clock.monotonic()

    @property
    def namespace(self) -> str:
        return self.call.state_namespace

    @property
    def now_ms(self) -> int:
        return self.call.world.clock.now_ms()

    @property
    def largest(self) -> int:
        """Return the most bytes of an answer: more would not fit into the VM."""
        return self.call.memory_limit

    def subject(self, key: bytes) -> Subject:
        """Return what an error of this call names.  Raises CallFailed for a key that is too long."""
        limits = self.call.world.state
        subject = Subject(self.function, key, self.failure, limits.max_value_bytes)
        if len(key) > limits.max_key_bytes:
            raise CallFailed(subject.refusal(f"{len(key)} bytes are over the limit of {limits.max_key_bytes}"))
        return subject

    def pattern(self, pattern: bytes) -> bytes:
        """Check a pattern.  Raises CallFailed for one that is too long."""
        if (reason := excess(pattern)) is not None:
            raise CallFailed((self.failure, f"{self.function}: {reason}"))
        return pattern

    def item(self, subject: Subject, given: object, position: int) -> Value:
        """Convert a value to store inside a table.  Raises OpError for nil, CallFailed for an unstorable value."""
        if given is None:
            raise OpError(f"bad argument #{position} to '{self.function}' (value expected, got nil)")
        try:
            return value_from_lua(given)
        except Unstorable as problem:
            raise CallFailed(subject.refusal(str(problem))) from None

    def value(self, subject: Subject, given: object, position: int) -> Value:
        """Convert a value to store under a key.  Raises as `item` does."""
        value = self.item(subject, given, position)
        if value is NULL:
            raise CallFailed(subject.refusal("JSON's null can only be kept inside a table"))
        return value

    def expiry(self, subject: Subject, ttl: float | None) -> int | None:
        try:
            return self.expires_at(ttl)
        except Unstorable as problem:
            raise CallFailed(subject.refusal(str(problem))) from None

    def expires_at(self, ttl: float | None) -> int | None:
        """Return when a value expires that is written now; one without time left is told in the job's log.

        Raises Unstorable.
        """
        if ttl is not None and ttl <= 0:
            self.call.log("warn", f"{self.function}: with a ttl of {ttl:g} the value expires at once".encode())
        return expiry_of(ttl, self.now_ms)

    def trouble(self, error: StoreError) -> Results:
        """Return the results for a failure of the store, or for an answer that is too large."""
        if not isinstance(error, TooLarge):
            count_failure(self.call, self.function, error)
        return self.failure, f"{self.function}: {self.reason(error)}"

    def reason(self, error: StoreError) -> str:
        return f"{error}, which is this job's memory limit" if isinstance(error, TooLarge) else str(error)

    async def caught(self, handler: Callable[..., Awaitable[Results]], arguments: Sequence[object]) -> Results:
        """Return the results of a function that may raise CallFailed or StoreError."""
        try:
            return await handler(self, *arguments)
        except CallFailed as failed:
            return failed.results
        except StoreError as error:
            return self.trouble(error)

    def change(self, key: bytes, transform: Transform) -> StoreAnswer[object]:
        """Apply a transform, whose result is what the script gets."""
        call = self.call
        source = call.values.transform(call.state_namespace, key, transform, origin=call.origin)
        return self.answer(source, as_they_are)

    def read(self, key: bytes, results: Callable[[Entry | None], Results]) -> StoreAnswer[Entry | None]:
        return self.answer(self.call.values.read(self.namespace, key), results)

    def answer(
        self,
        source: Future[T],
        results: Callable[[T], Results],
        refusal: Callable[[StoreError], Results] | None = None,
    ) -> StoreAnswer[T]:
        """Turn the store's answer into the script's results.

        `refusal` makes those of a failure; None: the function's failure value, and the text.
        """

        def results_of(source: Future[T]) -> Results:
            world = self.call.world
            world.metrics.state.times.observe(world.clock.monotonic() - self._began)
            try:
                return results(source.result())
            except StoreError as error:
                trouble = self.trouble(error)
                if refusal:
                    return refusal(error)
                if not isinstance(error, TooLarge):
                    raise_if_wanted(self.call, self.function, error)
                return trouble

        return StoreAnswer(source, results_of)


def as_they_are(results: object) -> Results:
    if not isinstance(results, tuple):
        raise TypeError(f"a rule gave {results!r}")
    return results


def positional(
    name: str,
    *,
    failure: object,
    needs: Need = READ_STATE,
    effect: OpEffect | None = None,
    types: str,
    overloads: tuple[str, ...] = (),
) -> Callable[
    [Callable[Concatenate[PositionalCall, P], Awaitable[Results]]], Callable[Concatenate[Call, P], Awaitable[Results]]
]:
    """Make an op of a function; `needs`, `effect`, `types` and `overloads` are those of `op`.

    One that is no `async def` makes a single request to the store: only such are timed and counted.
    """

    def decorate(
        handler: Callable[Concatenate[PositionalCall, P], Awaitable[Results]],
    ) -> Callable[Concatenate[Call, P], Awaitable[Results]]:
        @op(name=name, needs=needs, effect=effect, types=types, overloads=overloads)
        @wraps(handler)
        def begin(call: Call, /, *arguments: P.args, **named: P.kwargs) -> Awaitable[Results]:
            state_call = PositionalCall(call, name, failure)
            if iscoroutinefunction(handler):
                return Unstarted(partial(state_call.caught, handler, arguments))
            metrics = call.world.metrics.state
            metrics.writes += needs is WRITE_STATE
            metrics.reads += needs is not WRITE_STATE
            if _are_large(arguments):
                return Unstarted(partial(begin_with_large, state_call, arguments))
            try:
                return handler(state_call, *arguments, **named)
            except CallFailed as failed:
                return _done(failed.results)

        async def begin_with_large(state_call: PositionalCall, arguments: Sequence[object]) -> Results:
            return await state_call.caught(handler, await asyncio.to_thread(_prepare, arguments))

        return begin

    return decorate


def _are_large(arguments: Sequence[object]) -> bool:
    """Return whether converting these would block the loop: a table may have hundreds of thousands of values."""
    return not _TABLES.isdisjoint(map(type, arguments)) and len(wire.pack(arguments)) > CONVERTED_AT_ONCE


def _prepare(arguments: Sequence[object]) -> list[object]:
    """Convert the values to store: those of a positional call, or those in the table of a table-first call.

    Never raises: errors show when they are read.
    """
    first, *others = arguments
    return [_prepare_fields(first) if isinstance(first, dict) else first, *map(prepared, others)]


def _prepare_fields(fields: Mapping[object, object]) -> dict[object, object]:
    made = {name: prepared(given) if name in _VALUES else given for name, given in fields.items()}
    if isinstance(ops := made.get(b"ops"), list):
        made[b"ops"] = [_prepare_fields(each) if type(each) is dict else each for each in ops]
    return made


def _done(results: Results) -> Future[Results]:
    future: Future[Results] = asyncio.get_running_loop().create_future()
    future.set_result(results)
    return future
