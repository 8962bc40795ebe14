"""Each public function of the source is tested: a test names it, or names one that leads to it.

What a decorator takes into a table is tested as one of that table's: each op, route and page by tests of all of them.
What a library calls is known by its name in the library's own class.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module

from tests.fakes.repository import ROOT, modules

WORD = re.compile(r"[A-Za-z_]\w*")


def functions(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield those of a module and of its classes, each with its class."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, node


def named_in(tree: ast.AST) -> set[str]:
    """Return the names that code uses; also those in its strings, since tables of commands name functions so."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(WORD.findall(node.value))
    return found


def is_called_by_a_library(path: str, owner: str, name: str) -> bool:
    module = import_module(path.removesuffix(".py").replace("/", "."))
    types = [each for each in vars(module).values() if isinstance(each, type)]
    heirs = [each for each in types if owner in [base.__name__ for base in each.__mro__]]
    bases = {base for heir in heirs for base in heir.__mro__ if not base.__module__.startswith("spyweb")}
    return any(name in vars(base) for base in bases)


def reached_from(known: set[str], leads_to: dict[str, set[str]]) -> set[str]:
    reached, at_hand = set(known), list(known)
    while at_hand:
        further = leads_to.get(at_hand.pop(), set()) - reached
        reached |= further
        at_hand += further
    return reached


def test_each_public_function_is_reached_from_a_test() -> None:
    known = {word for path in (ROOT / "tests").rglob("*.py") for word in WORD.findall(path.read_text())}
    known |= {word for path in (ROOT / "spyweb").rglob("*.html") for word in WORD.findall(path.read_text())}
    leads_to, public = defaultdict[str, set[str]](set), []
    for path, tree in modules():
        for owner, node in functions(tree.body):
            leads_to[node.name] |= named_in(node)
            if node.decorator_list or node.name.startswith("__"):
                known.add(node.name)
            elif not node.name.startswith("_"):
                public.append((path, owner, node.name))
        known |= {
            word
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr)
            for word in named_in(node)
        }
    reached = reached_from(known, leads_to)
    by_libraries = {each[2] for each in public if each[2] not in reached and is_called_by_a_library(*each)}
    reached |= reached_from(by_libraries, leads_to)
    assert not [each for each in public if each[2] not in reached]


def test_what_several_files_use_is_in_the_fakes() -> None:
    """A file of tests that another needs can't be read, moved or deleted for itself."""
    taken = re.compile(r"^from tests\.(?!fakes)\S+ import", re.MULTILINE)
    assert not [path for path in (ROOT / "tests").rglob("*.py") if taken.search(path.read_text())]
