"""Everything that a script finds in its globals is on the reference page, and nothing there is missing from a VM."""

from __future__ import annotations

import re

import pytest

from docs.reference.generate import parts_of
from spyweb.ops import catalog
from spyweb.reference.language import TABLES
from tests.fakes.lua_library import globals_of_a_vm
from tests.fakes.lua_text import compile_problem, names_of_plain_lua
from tests.fakes.repository import ROOT, code_blocks, code_words, pages, read

PAGE = "docs/reference/lua.md"
STANDARD = ("string", "table", "math", "utf8", "coroutine")  # "all of Lua 5.4"
NOT_ALL = {"string.dump"}
CALLED_BY_US = {"run", "on_success", "on_error", "on_finally"}
ONLY_IN_TESTS = {"spyweb.assert_eq", "spyweb.assert_ne"}
_CALL = re.compile(r"^([a-z_0-9]+(?:\.[a-z_0-9]+)?)\(")


def plain_lua() -> frozenset[str]:
    return names_of_plain_lua(STANDARD) - NOT_ALL


def documented() -> set[str]:
    """Every name that the page sets as code: `f(x)` as f, and words of their own; tables whose members are there."""
    words = code_words(read(PAGE))
    calls = {found[1] for word in words for found in [_CALL.match(word)] if found}
    fields = {f"engine.{each.name}" for each in TABLES["Engine"].fields if ("table", "Engine") in parts_of(read(PAGE))}
    return calls | words | fields | {name.partition(".")[0] for name in calls | fields}


def test_everything_in_a_scripts_globals_is_documented() -> None:
    known = documented() | plain_lua()
    assert globals_of_a_vm() <= known


def test_everything_that_is_documented_is_there() -> None:
    calls = {found[1] for word in code_words(read(PAGE)) for found in [_CALL.match(word)] if found}
    assert calls - CALLED_BY_US - ONLY_IN_TESTS <= globals_of_a_vm()


def test_all_of_lua_is_there_where_the_page_says_all() -> None:
    assert plain_lua() <= globals_of_a_vm()


def test_every_op_is_documented_with_its_own_parameters() -> None:
    """Required and optional alike, `x?` where it may be left out; `options` tables are spelt out on the page."""
    words = code_words(read(PAGE))
    for name, operation in catalog.CATALOGUE.items():
        if not name.startswith("_"):
            assert operation.usage in words, f"the page has no `{operation.usage}`"


def test_the_page_for_assistants_names_only_functions_that_there_are() -> None:
    (functions,) = code_blocks(read("docs/how-to/write-jobs-for-assistants.md"), "text")
    named = set(re.findall(r"([a-z_0-9]+(?:\.[a-z_0-9]+)?)[({]", functions))
    assert len(named) > 60
    assert named <= globals_of_a_vm() | plain_lua()


SNIPPETS = [
    (str(page.relative_to(ROOT)), block)
    for page in pages()
    for block in code_blocks(page.read_text(encoding="utf-8"), "lua")
]


@pytest.mark.parametrize(("page", "block"), SNIPPETS, ids=[page for page, _ in SNIPPETS])
def test_every_example_on_a_page_compiles(page: str, block: str) -> None:
    """An excerpt may stand in a function or return from one."""
    assert compile_problem(block, page) is None
