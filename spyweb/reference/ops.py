"""The functions that are ops: their names, parameters and words from the catalogue, finer types from here.

A new op appears by itself, with the types that its Python signature tells.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import replace
from typing import Union, get_args, get_origin, get_type_hints

from spyweb.ops import catalog
from spyweb.ops.answer import Answer
from spyweb.ops.op import Operation
from spyweb.reference.entries import Argument, Family, Function, Result, function, in_one_line

HEADERS = "table<string, string|number>"
CHANGED = "StateChange"

# family → how its ops are called, and what becomes of errors
FAMILIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "stored values": (
        ("store_", "global_store_"),
        "A failing disk is logged and marks the run (`success, 3 storage errors`), `store_get` gives nil and "
        "`global_store_incr` its default.",
    ),
    "state": (
        ("state.",),
        "What can't be done gives false, nil, -1 or 0 (for `state.list_length`), and a text with the key and the "
        "reason. With a table first it raises a table `{code, message}`.",
    ),
    "locks": (
        ("state.lock", "state.try_lock", "state.unlock", "state.is_locked"),
        "A lock that is not to be had gives false and a text that names its holder.",
    ),
    "HTTP": (
        ("http_",),
        "Whatever goes wrong on the way gives nil and an `HttpError`; only a wrong type of argument raises.",
    ),
    "TLS": (("tls_",), "Gives nil and a message."),
    "files": (
        ("fs_",),
        "A name that leads out of the folder, another ending, a file larger than the job's memory, a full disk raise.",
    ),
    "SQL": (("db_",), "Whatever SQLite refuses raises, with its message."),
}
OTHERS = "time and desktop"  # ops of no family
OF_OTHERS = "Only a wrong type of argument raises."

# What a Python signature does not tell of types.
FINER: Mapping[str, str] = {
    "store_set": "(key: string|number, value: string|number)",
    "store_get": "(key: string|number): string? value",
    "store_delete": "(key: string|number)",
    "global_store_set": "(key: string|number, value: string|number)",
    "global_store_get": "(key: string|number): string? value",
    "global_store_delete": "(key: string|number)",
    "global_store_incr": "(key: string|number, default: integer, delta: integer): integer sum",
    "http_get": f"(url: string, headers?: {HEADERS}): HttpResponse? response, HttpError? error",
    "http_post": f"(url: string, body: string|number, headers?: {HEADERS}): HttpResponse? response, HttpError? error",
    "http_request": "(options: HttpOptions): HttpResponse? response, HttpError? error",
    "http_multipart": (
        f"(url: string, fields: table<string, string|number|HttpFile>, headers?: {HEADERS})"
        ": HttpResponse? response, HttpError? error"
    ),
    "tls_probe": "(host: string, port?: integer): Certificate? certificate, string? message",
    "db_query": "(sql: string, params?: any[]): table<string, string|number>[] rows",
    "db_exec": "(sql: string, params?: any[]): integer changed",
    "state.set": "(key: string, value: any, ttl?: number): boolean ok, string? message",
    "state.set_with_ttl": "(key: string, value: any, ttl: number): boolean ok, string? message",
    "state.get": "(key: string, default?: any): any value, string? message",
    "state.exists": "(key: string): boolean exists, string? message",
    "state.delete": "(key: string): boolean ok, string? message",
    "state.clear": "(pattern?: string): boolean ok, string? message",
    "state.keys": "(pattern?: string): string[]? keys, string? message",
    "state.list": "(prefix?: string): table<string, any>? values, string? message",
    "state.list_groups": "(): {groups: string[]} scopes",
    "state.update": "(options: StateUpdate): StateChange change",
    "state.set_ttl": "(key: string, seconds: number): boolean ok, string? message",
    "state.get_ttl": "(key: string): integer seconds, string? message",
    "state.increment": "(key: string, delta?: number): number? sum, string? message",
    "state.decrement": "(key: string, delta?: number): number? difference, string? message",
    "state.append": "(key: string, value: string|number): integer? length, string? message",
    "state.compare_swap": "(key: string, old: any, new: any): boolean swapped, string? message",
    "state.list_push": "(key: string, item: any): integer? length, string? message",
    "state.list_pop": "(key: string): any item, string? message",
    "state.list_length": "(key: string): integer length, string? message",
    "state.history": "(key: string, count?: integer): StateVersion[]? versions, string? message",
    "state.get_version": "(key: string, version: integer): any value, string? message",
    "state.rollback": "(key: string, version: integer): boolean ok, string? message",
    "state.stats": "(): StateStats? stats, string? message",
    "state.try_lock": "(name: string, holder?: string, ttl?: number): boolean ok, string? message",
    "state.lock": "(name: string, holder?: string, timeout?: number): boolean ok, string? message",
    "state.unlock": "(name: string, holder?: string): boolean ok, string? message",
    "state.is_locked": "(name: string): boolean is_locked, string? holder",
}

OVERLOADS: Mapping[str, tuple[str, ...]] = {
    "state.set": (f"fun(options: {{scope: string, key: string, value: any, ttl?: number}}): {CHANGED}",),
    "state.get": ("fun(options: {scope: string, key: string}): any",),
    "state.delete": ("fun(options: {scope: string, key: string}): any",),
    "state.keys": ("fun(options: {scope: string, pattern?: string}): string[]",),
    "state.list": ("fun(options: {scope: string}): any[]",),
    "state.lock": ("fun(name: string, timeout?: number): boolean, string?",),
    "state.try_lock": ("fun(name: string, ttl?: number): boolean, string?",),
}

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
    """Every public op, in the order of the catalogue."""
    public = [each for name, each in catalog.operations().items() if not name.startswith("_")]
    told = {name: errors for name, (_, errors) in FAMILIES.items()} | {OTHERS: OF_OTHERS}
    return [
        Family(
            name=name, functions=tuple(function_of(each) for each in public if family_of(each) == name), errors=errors
        )
        for name, errors in told.items()
    ]


def family_of(operation: Operation) -> str:
    """The one with the longest of the prefixes that fit."""
    fitting = (
        (len(prefix), name)
        for name, (prefixes, _) in FAMILIES.items()
        for prefix in prefixes
        if operation.name.startswith(prefix)
    )
    return max(fitting, default=(0, OTHERS))[1]


def function_of(operation: Operation) -> Function:
    finer = FINER.get(operation.name)
    plain = Function(
        name=operation.name,
        arguments=tuple(Argument(each.name, _kind(each.kind), each.optional) for each in operation.parameters),
        results=results_of(operation),
        text=in_one_line(operation.doc),
        waits=True,
        overloads=OVERLOADS.get(operation.name, ()),
    )
    if finer is None:
        return plain
    told = function(operation.name + finer, plain.text)
    return replace(plain, arguments=told.arguments, results=told.results)


def _kind(kind: str) -> str:
    return "any" if kind == "value" else kind


def results_of(operation: Operation) -> tuple[Result, ...]:
    """Return the results of an op, as its handler is annotated."""
    hint = get_type_hints(operation.handler)["return"]
    if get_origin(hint) is Answer:
        (hint,) = get_args(hint)
    if hint in (None, type(None)):
        return ()
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        return tuple(Result(type_of(each)) for each in get_args(hint))
    return (Result(type_of(hint)),)


def type_of(hint: object) -> str:
    """A Python type in LuaLS's words; `any` where it tells too little."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [each for each in get_args(hint) if each is not type(None)]
        told = "|".join(dict.fromkeys(type_of(each) for each in parts))
        return f"{told}?" if len(parts) < len(get_args(hint)) and told != "any" else told
    return _SIMPLE.get(get_origin(hint) or hint, "any")
