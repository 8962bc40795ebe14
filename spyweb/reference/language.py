"""Every function that scripts call or define, and the tables that they are given and return.

What is an op is read from the catalogue of ops.  language.toml has the functions that lua/worker/ puts into a script's
globals besides these and Lua's own, tables.toml the tables.  Entries are written so:

    json_encode(value: any, empty_as_array?: boolean): string text

Types are LuaLS's own: `T?` is T or nil.  A result may have a name, which is its last word.
"""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from spyweb.lua.hooks import HOOKS
from spyweb.lua.session import StoreAnswer
from spyweb.ops import catalog
from spyweb.ops.op import Operation
from spyweb.specs.linting.names import ABSENT_FAMILIES

_SIGNATURE = re.compile(r"(?P<name>[\w.]*)\((?P<rest>.*)", re.DOTALL)
_NAMED_RESULT = re.compile(r"(?P<type>.*\S)\s+(?P<name>[a-z_]\w*)", re.DOTALL)
_OPEN, _CLOSED = "([{<", ")]}>"


class Argument(Struct, frozen=True):
    """A parameter, or a field of a table."""

    name: str  # "..." for any number
    type: str
    optional: bool = False
    text: str = ""

    @property
    def shown(self) -> str:
        return f"{self.name}?" if self.optional else self.name


class ResultType(Struct, frozen=True):
    type: str
    name: str = ""


class Function(Struct, frozen=True, kw_only=True):
    name: str
    arguments: tuple[Argument, ...]
    results: tuple[ResultType, ...]
    text: str
    waits: bool = False  # suspends the script
    overloads: tuple[str, ...] = ()  # other ways to call it, as LuaLS types

    @property
    def usage(self) -> str:
        return f"{self.name}({', '.join(argument.shown for argument in self.arguments)})"


class Family(Struct, frozen=True, kw_only=True):
    """Functions that belong together, under one name."""

    name: str
    functions: tuple[Function, ...]
    errors: str  # how its functions fail


class TableType(Struct, frozen=True, kw_only=True):
    name: str
    text: str
    fields: tuple[Argument, ...]


def function(signature: str, text: str, *, waits: bool = False, overloads: tuple[str, ...] = ()) -> Function:
    found = _SIGNATURE.fullmatch(signature)
    if not found:
        raise ValueError(f"not a signature: {signature}")
    arguments, results = _halves(found["rest"])
    return Function(
        name=found["name"],
        arguments=tuple(_argument(each) for each in _split(arguments)),
        results=tuple(_result(each) for each in _split(results)),
        text=text,
        waits=waits,
        overloads=overloads,
    )


def _argument(notation: str, text: str = "") -> Argument:
    name, _, kind = notation.partition(":")
    name = name.strip()
    return Argument(name.removesuffix("?"), kind.strip() or "any", name.endswith("?"), text)


def _result(notation: str) -> ResultType:
    named = _NAMED_RESULT.fullmatch(notation)
    return ResultType(named["type"], named["name"]) if named else ResultType(notation)


def _halves(rest: str) -> tuple[str, str]:
    """Split a signature into its parameters and what follows the colon behind them."""
    depth = 1
    for at, sign in enumerate(rest):
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if depth == 0:
            return rest[:at], rest[at + 1 :].strip().removeprefix(":").strip()
    raise ValueError(f"a parenthesis is not closed: ({rest}")


def _split(text: str) -> Iterator[str]:
    """Split a text at its commas, but not at those within brackets."""
    depth, begun = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if sign == "," and depth == 0:
            yield text[begun:at].strip()
            begun = at + 1
    if text[begun:].strip():
        yield text[begun:].strip()


def _read(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("spyweb.reference") / name).read_text(encoding="utf-8"))


def _functions(family: dict[str, Any]) -> Iterator[Function]:
    overloads = family.get("overloads", {})
    for key in ("at_once", "waits"):
        for signature, text in family.get(key, {}).items():
            other = tuple(overloads[name] for name in overloads if signature.startswith(f"{name}("))
            yield function(signature, text, waits=key == "waits", overloads=other)


FAMILIES = tuple(
    Family(name=name, functions=tuple(_functions(family)), errors=family["errors"])
    for name, family in _read("language.toml").items()
)
TABLES = {
    name: TableType(name=name, text=fields.pop("about"), fields=tuple(_argument(*field) for field in fields.items()))
    for name, fields in _read("tables.toml").items()
}
ABSENT = tuple(name.decode() for name in ABSENT_FAMILIES)  # every use of them raises
METHODS = ("get", "post", "put", "patch", "delete", "all")  # tables of the server's handlers

# The functions that a job's files may define: the hooks of monitors, and the entries of scripts.
CALLS = {hook.name: function(hook.name + hook.signature, hook.called, overloads=hook.overloads) for hook in HOOKS}

# Of a script job, besides on_success, on_error and on_finally; the last two of a monitor as well.
ENTRIES = (
    function("run(ctx: Ctx): any result, string? message", "Called for each run of a script job."),
    function(
        "on_state(event: StateEvent, ctx: Ctx): any result, string? message",
        "Called in place of `run` when a change of state starts the job.",
    ),
    function("on_down(incident: Incident, ctx: Ctx)", "Called once for each incident of the job, when it has begun."),
    function("on_up(incident: Incident, ctx: Ctx)", "Called once for each incident of the job, when it is over."),
)

_SIMPLE: Mapping[object, str] = {
    bytes: "string",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "table",
    dict: "table",
}


def op_families() -> list[Family]:
    """Return every public op by its family, in the order of the catalogue."""
    return [
        Family(name=family.name, functions=tuple(map(function_of, operations)), errors=family.errors)
        for family, operations in catalog.families().items()
    ]


def function_of(operation: Operation) -> Function:
    text, overloads = " ".join(operation.doc.split()), operation.overloads
    if operation.signature:
        return function(operation.name + operation.signature, text, waits=True, overloads=overloads)
    return Function(
        name=operation.name,
        arguments=tuple(
            Argument(each.name, "any" if each.reader.kind == "value" else each.reader.kind, each.optional)
            for each in operation.parameters
        ),
        results=results_of(operation),
        text=text,
        waits=True,
        overloads=overloads,
    )


def results_of(operation: Operation) -> tuple[ResultType, ...]:
    """Return the results of an op, as its handler is annotated."""
    hint = get_type_hints(operation.handler)["return"]
    if get_origin(hint) is StoreAnswer:
        (hint,) = get_args(hint)
    if hint in (None, type(None)):
        return ()
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        return tuple(ResultType(type_of(each)) for each in get_args(hint))
    return (ResultType(type_of(hint)),)


def type_of(hint: object) -> str:
    """Return a Python type in LuaLS's notation; `any` for types that it can't express."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [each for each in get_args(hint) if each is not type(None)]
        union = "|".join(dict.fromkeys(type_of(each) for each in parts))
        return f"{union}?" if len(parts) < len(get_args(hint)) and union != "any" else union
    return _SIMPLE.get(get_origin(hint) or hint, "any")
