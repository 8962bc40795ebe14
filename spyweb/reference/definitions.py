"""Write the reference as a LuaLS definition file: for editors, never executed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spyweb import __version__
from spyweb.reference import language
from spyweb.reference.language import Function, TableType

FIRST_LINE = "---@meta _"  # no module: nobody can require it
OWN = ("state", "bit32", "spyweb", "crypto", "file", "data", "template", "exec")  # tables of functions of ours alone
WITH_FIELDS = {  # functions with fields: the name of their type, and what calling them takes and gives
    "log": ("Log", "fun(...: any)"),
    "workflow": ("Workflows", "fun(name: string): Workflow"),
}
ABOUT = f"""{FIRST_LINE}
-- What a script finds in its globals, for lua-language-server. Written by `spyweb types` of spyweb {__version__}.
-- In .luarc.json: "runtime.version": "Lua 5.4", and in "workspace.library" this file, unless it is in the project.
"""


def definitions() -> str:
    functions = [each for family in (*language.op_families(), *language.FAMILIES) for each in family.functions]
    called_by_us = [*language.ENTRIES, *language.CALLS.values()]
    blocks = [
        ABOUT,
        *map(_table, language.TABLES.values()),
        *_globals(),
        *map(_function, sorted(functions, key=lambda each: each.name.count("."))),  # `log` comes before `log.info`
        *map(_function, called_by_us),
    ]
    return "\n".join(blocks)


def _table(table: TableType) -> str:
    fields = (f"---@field {each.shown} {each.type} {each.text}".rstrip() for each in table.fields)
    return _lines([*_comment(table.text), f"---@class {table.name}", *fields])


def _globals() -> Iterator[str]:
    handlers = "table<string, fun(self: ServerRequest): string|ServerResponse|nil>"
    yield _global("engine", kind="Engine")
    yield _global("JSON_EMPTY_ARRAY", "An array for `json_encode` where an empty table would be an object.")
    about = "The values of the settings, and of the request that starts the run; read-only."
    yield _global("values", about, "table<string, any>") + "Values = values\n"
    yield from map(_global, OWN)
    yield _global("state.null", "JSON's null, inside tables.")
    yield _global("SERVER_PORT", "Where the server under test listens; only in its tests.", "integer", "0")
    for name in language.METHODS:
        yield _global(name, f"Handlers of {name}; only in server/init.lua.", handlers)
    yield _global("public", "Handlers under /api/public/, which ask for no key.", f"table<string, {handlers}>")
    for name in language.ABSENT:
        yield _global(name, "Not part of this version: whatever is asked of it raises.\n---@deprecated")


def _global(name: str, text: str = "", kind: str = "", value: str = "{}") -> str:
    return _lines([*_comment(text), *([f"---@type {kind}"] if kind else []), f"{name} = {value}"])


def _function(each: Function) -> str:
    lines = [*_comment(each.text)]
    lines += ["---@async"] if each.waits else []
    lines += [f"---@param {argument.shown} {argument.type}" for argument in each.arguments]
    lines += [f"---@return {result.type} {result.name}".rstrip() for result in each.results]
    lines += [f"---@overload {overload}" for overload in each.overloads]
    names = ", ".join(argument.name for argument in each.arguments)
    body = [f"function {each.name}({names}) end"]
    if each.name in WITH_FIELDS:
        kind, call = WITH_FIELDS[each.name]
        body = [f"---@class {kind}", f"---@overload {call}", f"{each.name} = {{}}"]
    return _lines([*lines, *body])


def _comment(text: str) -> list[str]:
    return [f"---{text}"] if text else []


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
