"""The tree of errors on its page is the one in errors.py, and both are the classes that exist."""

from __future__ import annotations

import re
from enum import IntEnum

from spyweb import errors
from spyweb.errors import ExitCode, SpywebError
from spyweb.model import Failure, Outcome
from tests.fakes.repository import code_blocks, code_words, read

PAGE = "docs/reference/errors.md"
_NAME = re.compile(r"[├└]── (\w+)")


def descendants(kind: type[SpywebError]) -> set[str]:
    below = [kind_below for kind_below in kind.__subclasses__() if kind_below.__module__ == errors.__name__]
    return {kind_below.__name__ for kind_below in below}.union(*(descendants(kind_below) for kind_below in below))


def test_the_page_draws_the_tree_of_the_code() -> None:
    tree = next(block for block in code_blocks(read(PAGE), "text") if block.startswith("SpywebError"))
    assert tree.strip() in (errors.__doc__ or "")


def test_the_tree_holds_every_error() -> None:
    assert set(_NAME.findall(errors.__doc__ or "")) == descendants(SpywebError)


def test_every_exit_code_is_documented() -> None:
    codes: type[IntEnum] = ExitCode
    table = read(PAGE).split("\n## ")[1]
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {int(code) for code in codes}


def test_every_outcome_and_reason_of_failure_is_documented() -> None:
    words = code_words(read(PAGE))
    assert {outcome.value for outcome in Outcome} <= words
    assert {failure.value for failure in Failure} <= words
