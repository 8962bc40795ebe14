"""Ask plain Lua 5.4 about a text, for tests that only look at scripts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from lupa.lua54 import LuaRuntime


def compile_problem(source: str, name: str) -> str | None:
    """Return why a source does not compile, or None."""
    problem: object = LuaRuntime(unpack_returned_tuples=False).execute(
        "return select(2, load(...))", source, f"@{name}"
    )
    return None if problem is None else str(problem)


@cache
def names_of_plain_lua(tables: Iterable[str]) -> frozenset[str]:
    """Return the members of these tables: `table.insert` and so on."""
    known = LuaRuntime(unpack_returned_tuples=False).globals()
    return frozenset(f"{table}.{key}" for table in tables for key in known[table])
