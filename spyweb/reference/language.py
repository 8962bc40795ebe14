"""Every function that scripts call or define, and the tables that they are given and return.

What is an op is read from the catalogue of ops.  language.toml has the functions that lua/worker/ puts into a script's
globals besides these and Lua's own, tables.toml the tables.
"""

from __future__ import annotations

import tomllib
import types
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Union, get_args, get_origin, get_type_hints

from spyweb.lua.hooks import HOOKS
from spyweb.lua.session import StoreAnswer
from spyweb.ops import catalog
from spyweb.ops.op import Operation
from spyweb.reference.entries import Argument, Family, Function, ResultType, TableType, argument, function, in_one_line
from spyweb.specs.linting.names import ABSENT_FAMILIES


def _read(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("spyweb.reference") / name).read_text(encoding="utf-8"))


def _functions(family: dict[str, Any]) -> Iterator[Function]:
    overloads = family.get("overloads", {})
    for key in ("at_once", "waits"):
        for signature, text in family.get(key, {}).items():
            other = tuple(overloads[name] for name in overloads if signature.startswith(f"{name}("))
            yield function(signature, text, waits=key == "waits", overloads=other)


def _table(name: str, about: str, **fields: str) -> TableType:
    return TableType(name=name, text=about, fields=tuple(argument(*field) for field in fields.items()))


FAMILIES = tuple(
    Family(name=name, functions=tuple(_functions(family)), errors=family["errors"])
    for name, family in _read("language.toml").items()
)
TABLES = {name: _table(name, **fields) for name, fields in _read("tables.toml").items()}
ABSENT = tuple(name.decode() for name in ABSENT_FAMILIES)  # they raise, whatever is asked of them
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
    text, overloads = in_one_line(operation.doc), operation.overloads
    if operation.signature:
        return function(operation.name + operation.signature, text, waits=True, overloads=overloads)
    return Function(
        name=operation.name,
        arguments=tuple(Argument(each.name, _kind(each.kind), each.optional) for each in operation.parameters),
        results=results_of(operation),
        text=text,
        waits=True,
        overloads=overloads,
    )


def _kind(kind: str) -> str:
    return "any" if kind == "value" else kind


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
