from __future__ import annotations

import pytest

from spyweb.errors import Problem
from spyweb.settings.tables import Table, parse_table

TEXT = '''\
# a comment
top = 1

[server]
port = 1   # port = 2
"quoted key" = 2

[jobs.one]
description = """
every = 5
"""
every = 6

[jobs."two words"]
retry.delay = 3
tags = [
    "a",
]
'''


def table(text: str, first_line: int = 1) -> Table:
    parsed = parse_table(text, "config.toml", first_line)
    assert isinstance(parsed, Table)
    return parsed


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("server",), 4),
        (("server", "port"), 5),
        (("server", "quoted key"), 6),
        (("jobs", "one", "every"), 12),
        (("jobs", "two words"), 14),
        (("jobs", "two words", "retry"), 15),
        (("jobs", "two words", "retry", "delay"), 15),
        (("jobs", "two words", "tags"), 16),
        (("server", "absent"), 4),
        (("absent",), None),
    ],
)
def test_every_key_has_the_line_on_which_it_stands(path: tuple[str, ...], line: int | None) -> None:
    assert table(TEXT).line_of(*path) == line


def test_a_table_below_names_its_keys_from_the_top() -> None:
    problem = table(TEXT).table("jobs", "one").problem("is wrong", "every")

    assert problem == Problem("config.toml", 12, "jobs.one.every", "is wrong")


def test_a_table_inside_another_file_counts_that_file_s_lines() -> None:
    assert table("a = 1\nb = 2", first_line=10).line_of("b") == 11


def test_a_table_that_is_not_there_is_empty() -> None:
    assert table(TEXT).table("absent", "deeper").values == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = 1\nb = ", 2), ("a = 1\nb = = 2\nc = 3", 2), ("a = 1\na = 2", 2), ('a = """\n\n', 2), ("[[[", 1)],
)
def test_broken_toml_is_one_problem_with_its_line(text: str, line: int) -> None:
    problem = parse_table(text, "config.toml")

    assert isinstance(problem, Problem)
    assert problem.line == line
    assert problem.reason.startswith("not valid TOML: ")


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000, "\x00", "a = 9999-99-99T00:00:00Z"])
def test_hostile_toml_is_a_problem_and_no_exception(text: str) -> None:
    assert isinstance(parse_table(text, "config.toml"), Problem)
