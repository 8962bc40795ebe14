from __future__ import annotations

import re

from spyweb.reference.definitions import FIRST_LINE, definitions
from tests.fakes.lua_text import compile_problem

TEXT = definitions()


def block_of(declaration: str) -> list[str]:
    """A declaration with the comment above it."""
    return next(block.splitlines() for block in TEXT.split("\n\n") if block.rstrip().endswith(declaration))


def test_it_is_lua_that_nobody_can_require() -> None:
    assert TEXT.startswith(f"{FIRST_LINE}\n")
    assert compile_problem(TEXT, "spyweb.d.lua") is None


def test_an_op_has_its_words_its_parameters_and_what_it_gives() -> None:
    assert block_of("function http_get(url, headers) end") == [
        "---Fetch an address; return a response, or nil and an error.",
        "---@async",
        "---@param url string",
        "---@param headers? table<string, string|number>",
        "---@return HttpResponse? response",
        "---@return HttpError? error",
        "function http_get(url, headers) end",
    ]


def test_a_hook_has_the_types_of_its_arguments() -> None:
    block = block_of("function before_fetch(request, ctx) end")
    assert {"---@param request Request", "---@param ctx Ctx", "---@return Request|false|nil"} <= set(block)


def test_other_ways_to_call_a_function_are_there() -> None:
    assert any(
        line.startswith("---@overload fun(options: {scope: string")
        for line in block_of("function state.get(key, default) end")
    )


def test_log_is_a_table_that_can_be_called() -> None:
    assert block_of("log = {}")[-2:] == ["---@overload fun(...: any)", "log = {}"]
    assert TEXT.index("log = {}") < TEXT.index("function log.info(")


def test_every_table_that_is_named_is_described() -> None:
    described = set(re.findall(r"---@class (\w+)", TEXT))
    annotations = [
        line for line in TEXT.splitlines() if line.startswith(("---@param", "---@return", "---@type", "---@overload"))
    ]
    fields = [" ".join(line.split()[1:3]) for line in TEXT.splitlines() if line.startswith("---@field")]
    named = set(re.findall(r"\b[A-Z]\w+\b", " ".join([*annotations, *fields])))
    assert named <= described
    assert described - named <= {"Log", "Workflows"}


def test_nothing_is_defined_twice() -> None:
    defined = re.findall(r"^function ([\w.]+)\(", TEXT, re.MULTILINE)
    assert len(defined) == len(set(defined))


def test_no_words_begin_with_a_fourth_dash_which_editors_take_for_an_ordinary_comment() -> None:
    assert not [line for line in TEXT.splitlines() if line.startswith("----")]
