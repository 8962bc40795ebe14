"""The reference is complete and as the code says: in the pages, and in the definitions for editors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lupa.lua54 import LuaRuntime

from spyweb.jobs.monitor.telemetry import STAGES
from spyweb.jobs.reference import hooks, language, ops, tables
from spyweb.jobs.reference.definitions import definitions
from spyweb.jobs.reference.entries import Table
from spyweb.jobs.reference.pages import PAGES, parts_of, renewed
from spyweb.lua.hooks import HOOKS
from spyweb.model import TriggerType
from tests.docs.test_lua import globals_of_a_vm
from tests.fakes.repository import read

NAMES_OF_A_TABLE = """
local names = {}
for name, value in pairs(_G) do
  names[#names + 1] = name
  if type(value) == "table" and value ~= _G then
    for key in pairs(value) do names[#names + 1] = name .. "." .. tostring(key) end
  end
end
return table.concat(names, " ")
"""
OF_THE_ENGINE = {f"engine.{field.name}" for field in tables.ENGINE[0].fields}


def defined() -> set[str]:
    """What is there once the definitions have been executed in plain Lua, which is what an editor knows besides."""
    lua = LuaRuntime(unpack_returned_tuples=False)
    lua.execute(definitions())
    return set(str(lua.execute(NAMES_OF_A_TABLE)).split())


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_as_it_would_be_generated_now(page: str) -> None:
    text = read(page)
    assert text == renewed(text), f"{page} is not up to date: `make docs` writes it anew"


def test_every_function_table_and_hook_is_on_a_page() -> None:
    shown = {part for page in PAGES for part in parts_of(read(page))}
    assert {name for kind, name in shown if kind == "functions"} == {
        family.name for family in (*ops.families(), *language.FAMILIES)
    }
    assert {table.name for table in tables.TABLES} - {name for kind, name in shown if kind == "table"} <= {
        "StateUpdate", "StateOp", "StateChange",
    }, "those are spelt out by hand, as calls"  # fmt: skip
    assert ("hooks", "all") in shown


def test_every_global_of_a_vm_is_in_the_definitions() -> None:
    sentinels = {"state.null.", "JSON_EMPTY_ARRAY."}
    absent = {f"{name}.1" for name in language.ABSENT}  # the name that they raise with
    missing = globals_of_a_vm() - defined() - OF_THE_ENGINE - absent
    assert not {name for name in missing if not name.startswith(tuple(sentinels))}


def test_every_hook_is_described_in_the_order_of_a_cycle() -> None:
    assert tuple(hook.name for hook in hooks.HOOKS) == HOOKS
    assert {hook.name for hook in hooks.HOOKS} <= defined()


def test_every_hook_that_is_a_stage_says_what_its_answer_does() -> None:
    stages = {name for name, kind in STAGES.items() if kind == "hook"}
    for hook in hooks.HOOKS:
        assert hook.can_fail is bool(hook.nothing) is (hook.name in stages), hook.name


def fields_of(name: str) -> Iterator[str]:
    found: Table = next(each for each in tables.TABLES if each.name == name)
    return (field.name for field in found.fields)


def test_why_a_run_began_has_every_type() -> None:
    (kind,) = (
        field.type for field in next(t for t in tables.RUN if t.name == "Trigger").fields if field.name == "type"
    )
    assert {f'"{each.value}"' for each in TriggerType} == set(kind.split("|"))
