"""The decorator that turns a function into an op, and the catalogue that it fills.

An op is `async def name(call: Call, key: Text, value: Text | None = None) -> …`: its name, signature and docstring give
the argument checks, the error texts and the reference.  If Lua's types say more than Python's, the decorator gets them
too.  It returns a value, a tuple of several, or is annotated `-> None` and returns nothing.  An op that makes one
request to the store is a plain `def` that returns a StoreAnswer: that saves a task for each call.

The decorator also says under which key of a policy the op falls.  An op without a need has no effect outside its run.
One whose need has no check asks by itself: what it will reach is known only there.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar, cast, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from spyweb.errors import OpError
from spyweb.lua.session import Unstarted
from spyweb.ops.arguments import ArgumentReader, Mismatch, reader_of, text_in
from spyweb.ops.notices import channel_of
from spyweb.ops.world import Call
from spyweb.store.model.entries import scope_namespace

Check = Callable[[Call, str, Sequence[object]], None]  # a call, its op, and the arguments.  Raises OpError


class OpEffect(StrEnum):
    """The effect of an op outside its run, which decides how it acts in a dry run.

    One that says nothing is taken for one that writes, and is refused there.
    """

    WRITES = "writes"  # it is refused
    KEEPS = "keeps"  # a stored value: what it writes is kept for the dry run alone
    NONE = "none"  # it is carried out as always
    LOOKS = "looks"  # the op itself changes nothing there, and reports the change that it would make


class Need(Struct, frozen=True):
    key: str  # of `[permissions]`
    check: Check | None = None  # None: the op itself asks
    effect: OpEffect | None = None  # of every op with this need; None: each says its own


def refuse_in_dry_run(_call: Call, function: str, _arguments: Sequence[object]) -> None:
    """Raise OpError: this would change something."""
    raise OpError(f"not in a dry run: {function}")


def _state(*, write: bool) -> Need:
    def check(call: Call, function: str, arguments: Sequence[object]) -> None:
        namespace = _namespace(call, arguments)
        if namespace is not None:
            call.permit(function, "state", namespace, write)

    return Need("state", check, OpEffect.KEEPS if write else OpEffect.NONE)


def _namespace(call: Call, arguments: Sequence[object]) -> str | None:
    """Return the namespace that a call is about; None for a scope that the op itself refuses."""
    first = arguments[0] if arguments else None
    if not isinstance(first, Mapping):
        return call.state_namespace
    try:
        scope = text_in(first, "scope")
        return None if scope is None else scope_namespace(scope.decode())
    except (Mismatch, UnicodeDecodeError):
        return None


def _people_or_desktop(call: Call, function: str, arguments: Sequence[object]) -> None:
    first = arguments[0] if arguments else None
    if not isinstance(first, Mapping):
        call.permit(function, "notify")
    elif channel := channel_of(first):  # else the op itself refuses the call
        call.permit(function, "notify", channel)


NET, EXEC, FILES = Need("net"), Need("exec"), Need("files")
DB = Need("db", lambda call, function, _: call.permit(function, "db"))
GLOBAL_STORE = Need("global_store", lambda call, function, _: call.permit(function, "global_store"))
NOTIFY = Need("notify", _people_or_desktop)
READ_STATE, WRITE_STATE = _state(write=False), _state(write=True)
ALL_SCOPES = Need("state", lambda call, function, _: call.permit(function, "all_scopes"), OpEffect.NONE)


Handler = TypeVar("Handler", bound=Callable[..., object])


class Parameter(Struct, frozen=True):
    name: str
    reader: ArgumentReader
    default: object = inspect.Parameter.empty  # instead of nil; empty: it is needed

    @property
    def optional(self) -> bool:
        return self.default is not inspect.Parameter.empty


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
        return f"{self.name}({', '.join(each.name + '?' * each.optional for each in self.parameters)})"

    def check_for(self, call: Call) -> Check | None:
        """Return the check before a call begins; None where there is none, or the op checks itself."""
        if call.is_dry and self.effect is OpEffect.WRITES:
            return refuse_in_dry_run
        return None if self.needs is None else self.needs.check

    def begin(self, call: Call, given: Sequence[object], check: Check | None = None) -> object:
        """Convert the arguments and call the handler; return its result: a future or a StoreAnswer.

        An `async def` runs when the returned value is awaited.  Extra arguments are ignored.  Raises OpError for a
        wrong one, and what `check` raises.
        """
        values = []
        for position, parameter in enumerate(self.parameters):
            omitted = position >= len(given)
            value = None if omitted else given[position]
            try:
                use_default = value is None and parameter.optional
                values.append(parameter.default if use_default else parameter.reader.read(value))
            except Mismatch as mismatch:
                reason = f"{parameter.reader.expected} expected, got no value" if omitted else str(mismatch)
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
        Parameter(each.name, reader_of(hints[each.name]), each.default)
        for each in list(inspect.signature(handler).parameters.values())[1:]
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
