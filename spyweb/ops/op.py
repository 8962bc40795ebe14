"""The decorator that turns a function into an op, and the catalogue that it fills.

An op is `async def name(call: Call, key: Text, value: Text | None = None) -> …`: its name, signature and docstring give
the argument checks, the error texts and the reference.  If Lua's types say more than Python's, the decorator gets them
too.  It returns a value, a tuple of several, or is annotated `-> None` and returns nothing.  An op that makes one
request to the store is a plain `def` that returns a StoreAnswer: that saves a task for each call.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar, cast, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from spyweb.errors import OpError
from spyweb.lua.session import Unstarted
from spyweb.ops.arguments import Mismatch, Read, reader_of
from spyweb.ops.needs import Check, Need, OpEffect, refuse_in_dry_run
from spyweb.ops.world import Call

Handler = TypeVar("Handler", bound=Callable[..., object])


class Parameter(Struct, frozen=True, kw_only=True):
    name: str
    kind: str  # the name of its type
    expected: str  # the name of its type in errors
    optional: bool
    read: Read  # knows the default: gives it for nil

    def __str__(self) -> str:
        return f"{self.name}?" if self.optional else self.name


class OpFamily(Struct, frozen=True, kw_only=True):
    """A family of related ops; each module of ops has its own as FAMILY."""

    name: str
    errors: str  # how its failures show, for the reference


class Operation(Struct, frozen=True, kw_only=True):
    """One op with its parameters and its description."""

    name: str
    shown_as: str = ""  # the name of the function in Lua that asks a private op
    parameters: tuple[Parameter, ...]
    handler: Callable[..., object]
    needs: Need | None = None  # the key of a policy that it falls under
    effect: OpEffect = OpEffect.WRITES  # outside its run
    is_async: bool  # the handler is an `async def`
    gives_nothing: bool
    doc: str
    signature: str = ""  # in LuaLS's notation: `(key: string, ttl?: number): boolean ok`; empty: as in Python
    overloads: tuple[str, ...] = ()  # other ways to call it, likewise

    @property
    def usage(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def check(self) -> Check | None:
        """Return what asks the policy of a call before it begins; None where nothing does, or the op itself."""
        return None if self.needs is None else self.needs.check

    @property
    def dry_check(self) -> Check | None:
        """Return what is asked in a dry run."""
        return refuse_in_dry_run if self.effect is OpEffect.WRITES else self.check

    def begin(self, call: Call, given: Sequence[object], check: Check | None = None) -> object:
        """Convert the arguments and call the handler; returns what it returns: a future or a StoreAnswer.

        An `async def` runs when the returned value is awaited.  Extra arguments are ignored.  Raises OpError for a
        wrong one, and what `check` raises.
        """
        values = []
        for position, parameter in enumerate(self.parameters):
            omitted = position >= len(given)
            try:
                values.append(parameter.read(None if omitted else given[position]))
            except Mismatch as mismatch:
                reason = f"{parameter.expected} expected, got no value" if omitted else str(mismatch)
                raise OpError(f"bad argument #{position + 1} to '{self.name}' ({reason})") from None
        if check is not None:
            check(call, self.name, values)
        if not self.is_async:
            return self.handler(call, *values)
        return Unstarted(partial(self._carry_out, call, values))

    async def _carry_out(self, call: Call, values: Sequence[object]) -> object:
        """Await the handler; a Mismatch in it is about a field of the table that is its first argument."""
        try:
            return await cast("Awaitable[object]", self.handler(call, *values))
        except Mismatch as mismatch:
            raise OpError(f"bad argument #1 to '{self.shown_as or self.name}' ({mismatch})") from None


CATALOGUE: dict[str, Operation] = {}


def op(
    *,
    name: str = "",
    shown_as: str = "",
    needs: Need | None = None,
    effect: OpEffect | None = None,
    types: str = "",
    overloads: tuple[str, ...] = (),
) -> Callable[[Handler], Handler]:
    """Register an op, under the function's own name or another (`@op(name="state.set")`).

    `needs` is the key of a policy that it falls under; None: there is nothing to ask for.
    `effect` decides about dry runs; None: that of `needs`, or else it writes.
    `types` is its signature in LuaLS's notation, when Python's says too little; `overloads` are other ways to call it.
    """

    def register(handler: Handler) -> Handler:
        known = effect or (needs and needs.effect) or OpEffect.WRITES
        described = describe(name or handler.__name__, handler, types, overloads)
        operation = replace(described, shown_as=shown_as, needs=needs, effect=known)
        if operation.name in CATALOGUE:
            raise TypeError(f"there are two ops named {operation.name}")
        CATALOGUE[operation.name] = operation
        return handler

    return register


def describe(
    name: str, handler: Callable[..., object], signature: str = "", overloads: tuple[str, ...] = ()
) -> Operation:
    """Read an op's parameters, results and texts from its function."""
    hints = get_type_hints(handler, include_extras=True)
    parameters = tuple(
        _parameter(parameter, hints[parameter.name])
        for parameter in list(inspect.signature(handler).parameters.values())[1:]
    )
    return Operation(
        name=name,
        parameters=parameters,
        handler=handler,
        is_async=inspect.iscoroutinefunction(handler),
        gives_nothing=hints["return"] is type(None),
        doc=inspect.getdoc(handler) or "",
        signature=signature,
        overloads=overloads,
    )


def _parameter(parameter: inspect.Parameter, annotation: object) -> Parameter:
    reader = reader_of(annotation)
    optional = parameter.default is not inspect.Parameter.empty
    return Parameter(
        name=parameter.name,
        kind=reader.kind,
        expected=reader.expected,
        optional=optional,
        read=_with_default(reader.read, parameter.default) if optional else reader.read,
    )


def _with_default(read: Read, default: object) -> Read:
    def read_or_default(value: object) -> object:
        return default if value is None else read(value)

    return read_or_default
