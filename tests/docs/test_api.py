"""The pages about the API and about errors are as the code says."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import get_args

from spyweb import errors
from spyweb.daemon.subjects import ROUTES
from spyweb.errors import ExitCode, SpywebError
from spyweb.model import Failure, Outcome, RunMark
from spyweb.store.model.runs import RunPoint
from spyweb.subjects.jobs.views import JobSort
from spyweb.web.answer import CODES, STATUS
from tests.fakes.repository import code_blocks, code_words, read

PAGE = "docs/reference/api.md"


def test_every_address_is_on_the_page() -> None:
    served = {
        re.sub(
            r"\{(job|run|name|incident|channel|says|window|change)\}",
            lambda found: found[1].upper(),
            f"{each.method} {each.path}",
        )
        for each in ROUTES
    }
    told = {found.partition("?")[0] for found in re.findall(r"\| `((?:GET|PUT|POST|PATCH|DELETE) [^`]+)`", read(PAGE))}
    assert told == served


def test_every_code_of_an_error_is_on_the_page_with_its_status() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| ([^|]+) \|", read(PAGE), re.MULTILINE)
    told = {
        (int(status), code) for numbers, codes in rows for status in numbers.split(", ") for code in codes.split(", ")
    }
    known = {*CODES.items(), *STATUS.values()} - {(417, "bad_request"), (500, "spyweb")}
    assert {(status, code) for status, code in known if (status, f"`{code}`") not in told} == set()


def test_the_page_says_what_letters_are_and_fields_without_a_name() -> None:
    told = dict(re.findall(r"^- \*\*(\w+)\*\*: (.*)$", read(PAGE), re.MULTILINE))
    assert all(f"`{mark}` {mark.name.lower()}" in told["RunMark"] for mark in RunMark)
    assert all(f"`{each}`" in read(PAGE) for each in get_args(JobSort) if not each.startswith("-"))
    assert f"`[{', '.join(RunPoint._fields)}]`" in told["RunPoint"]


ERRORS = "docs/reference/errors.md"
_NAME = re.compile(r"[├└]── (\w+)")


def descendants(kind: type[SpywebError]) -> set[str]:
    below = [kind_below for kind_below in kind.__subclasses__() if kind_below.__module__ == errors.__name__]
    return {kind_below.__name__ for kind_below in below}.union(*(descendants(kind_below) for kind_below in below))


def test_the_page_draws_the_tree_of_the_code() -> None:
    tree = next(block for block in code_blocks(read(ERRORS), "text") if block.startswith("SpywebError"))
    assert set(_NAME.findall(tree)) == descendants(SpywebError)


def test_every_exit_code_is_documented() -> None:
    codes: type[IntEnum] = ExitCode
    table = read(ERRORS).split("\n## ")[1]
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {int(code) for code in codes}


def test_every_outcome_and_reason_of_failure_is_documented() -> None:
    words = code_words(read(ERRORS))
    assert {outcome.value for outcome in Outcome} <= words
    assert {failure.value for failure in Failure} <= words
