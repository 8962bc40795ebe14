"""Read the rooms of spyweb (its packages and single modules) and their imports off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.fakes.repository import ROOT

SOURCE = ROOT / "spyweb"

Imports = Mapping[str, frozenset[str]]  # by room


def room_of(path: Path) -> str:
    """Return the room that a source file belongs to: the package, or the module of its own."""
    first, *rest = path.relative_to(SOURCE).parts
    return first if rest else first.removesuffix(".py")


def rooms() -> set[str]:
    return {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}


@cache
def imports() -> Imports:
    """Return, of each room, the other rooms that it imports, also within functions."""
    found: dict[str, set[str]] = {room: set() for room in rooms()}
    for path in SOURCE.rglob("*.py"):
        room = room_of(path)
        if room in found:
            found[room].update(_imported_by(path) & found.keys())
    return {room: frozenset(others - {room}) for room, others in found.items()}


def _imported_by(path: Path) -> set[str]:
    return {name.split(".")[1] for name in _names(ast.parse(path.read_text(encoding="utf-8"))) if "." in name}


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
        waiting.extend(others)
    return found
