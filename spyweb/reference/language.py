"""The functions that need no op, and the tables that scripts are given and return.

language.toml has the functions that lua/worker/ puts into a script's globals besides Lua's own, tables.toml the tables.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from spyweb.lua.hooks import HOOKS
from spyweb.reference.entries import Family, Function, TableType, argument, function
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
