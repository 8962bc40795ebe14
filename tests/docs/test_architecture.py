"""docs/architecture.md against the code: the picture of the rooms, the floors, the files that it names, the words."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

from tests.fakes.repository import read
from tests.fakes.rooms import SOURCE, imports, rooms, shortest_arrows

PAGE = read("docs/architecture.md")
_PICTURE = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_ARROW = re.compile(r"^\s*(\w+) --> ([\w &]+?)\s*$", re.MULTILINE)
_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|lua|sql))(?:: ([\w.]+))?`")


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
    missing = [f"{file}: {function}" for file, function in named if not _is_there(file, function)]
    assert missing == []


def _is_there(file: str, function: str) -> bool:
    path = SOURCE / file
    if not path.is_file():
        return False
    return not function or function in _functions(ast.parse(path.read_text(encoding="utf-8")))


def _functions(tree: ast.AST, within: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{node.name}"
            yield from _functions(node, f"{within}{node.name}.")
