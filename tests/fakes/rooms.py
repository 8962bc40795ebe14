"""Read the rooms of spyweb (its packages and single modules) and their imports off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from tests.fakes.repository import ROOT, modules

SOURCE = ROOT / "spyweb"

Imports = Mapping[str, frozenset[str]]  # by room


def room_of(path: str) -> str:
    """Return the room that a source file belongs to: the package, or the module of its own."""
    return path.removeprefix("spyweb/").partition("/")[0].removesuffix(".py")


def rooms() -> set[str]:
    return {room_of(path) for path, _ in modules()} - {"__init__", "__main__"}


@cache
def imports() -> Imports:
    """Return, of each room, the other rooms that it imports, also within functions."""
    found: dict[str, set[str]] = {room: set() for room in rooms()}
    for path, tree in modules():
        if room_of(path) in found:
            found[room_of(path)].update({name.split(".")[1] for name in _names(tree) if "." in name} & found.keys())
    return {room: frozenset(others - {room}) for room, others in found.items()}


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("spyweb"))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "spyweb":
            yield node.module
            if node.module == "spyweb":
                yield from (f"spyweb.{each.name}" for each in node.names)


def shortest_arrows(imports: Imports) -> set[tuple[str, str]]:
    """Return the imports that no chain of others implies (the transitive reduction), for the picture."""
    return {
        (room, other)
        for room, others in imports.items()
        for other in others
        if not any(other in _reached(between, imports) for between in others - {other})
    }


def _reached(room: str, imports: Imports) -> set[str]:
    found: set[str] = set()
    waiting = [room]
    while waiting:
        others = imports[waiting.pop()] - found
        found |= others
        waiting += others
    return found
