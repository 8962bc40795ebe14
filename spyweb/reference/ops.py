"""The functions that are ops, as the reference shows them: all read from the catalogue of ops."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Union, get_args, get_origin, get_type_hints

from spyweb.lua.session import StoreAnswer
from spyweb.ops import catalog
from spyweb.ops.op import Operation
from spyweb.reference.entries import Argument, Family, Function, ResultType, function, in_one_line

_SIMPLE: Mapping[object, str] = {
    bytes: "string",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "table",
    dict: "table",
}


def families() -> list[Family]:
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
