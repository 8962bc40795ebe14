"""docs/architecture.md against the code: the picture of the rooms, the floors, the files that it names, the words."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

from tests.fakes.repository import ROOT, modules, nodes, read

SOURCE = ROOT / "spyweb"
PAGE = read("docs/architecture.md")
_PICTURE = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_ARROW = re.compile(r"^\s*(\w+) --> ([\w &]+?)\s*$", re.MULTILINE)
_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|lua|sql))(?:: ([\w.]+))?`")

# How a docstring does not begin: without a subject and a verb, its first line does not stand alone.
_LEANS_ON_THE_NAME = re.compile(r"(?:What|Of|Those|Whoever|Whether|Also|Who|Less|Likewise|As (?:`|if |before))\b")


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
    for node in nodes(tree):
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


def drawn_arrows() -> set[tuple[str, str]]:
    (picture,) = _PICTURE.findall(PAGE)
    return {(room, other.strip()) for room, others in _ARROW.findall(picture) for other in others.split("&")}


def test_the_picture_shows_who_imports_whom() -> None:
    """All that no chain of other arrows implies, and nothing else."""
    drawn, found = drawn_arrows(), shortest_arrows(imports())
    assert sorted(found - drawn) == [], "not in the picture"
    assert sorted(drawn - found) == [], "not, or no longer, an import, or implied by others"


def test_the_picture_shows_every_room() -> None:
    assert {room for arrow in drawn_arrows() for room in arrow} == rooms()


def test_the_table_of_rooms_has_the_floors_of_the_contract_in_their_order() -> None:
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    _, _, table = PAGE.partition("\n## The rooms\n")
    rows = re.findall(r"^\| (`[^|]+) \|", table.partition("\n## ")[0], re.MULTILINE)
    listed = [[name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([\w./]+)`", row)] for row in rows]
    assert [sorted(row) for row in listed] == [sorted(layer.split(" | ")) for layer in layers]


def test_every_file_and_function_that_the_page_names_is_there() -> None:
    named = _FILE.findall(PAGE)
    assert named
    trees = dict(modules())
    missing = [
        f"{file}: {function}"
        for file, function in named
        if not (SOURCE / file).is_file() or (function and function not in _functions(trees[f"spyweb/{file}"]))
    ]
    assert missing == []


def _functions(tree: ast.AST, within: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{node.name}"
            yield from _functions(node, f"{within}{node.name}.")


def test_a_class_name_is_given_once() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file, tree in modules():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_the_first_line_of_a_docstring_stands_alone() -> None:
    """It has a subject and a verb, is an imperative, or names the thing: it does not go on from the name above."""
    leaning = [f"{file}: {name}: {first}" for file, name, first in _first_lines() if _LEANS_ON_THE_NAME.match(first)]
    assert leaning == []


def _first_lines() -> Iterator[tuple[str, str, str]]:
    for file, tree in modules():
        for node in nodes(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and not _is_for_script_authors(file, node):
                    yield file, getattr(node, "name", "module"), text.splitlines()[0]


def _is_for_script_authors(file: str, node: ast.AST) -> bool:
    """Return whether this is an op: its docstring is its line in the reference, behind its name."""
    decorated = getattr(node, "decorator_list", ())
    names = {getattr(getattr(each, "func", each), "id", "") for each in decorated}
    return file.startswith("spyweb/ops/") and bool(names & {"op", "positional"})
