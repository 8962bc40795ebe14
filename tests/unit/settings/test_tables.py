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


LIST = """\
[[jobs]]
name = "a"
[jobs.proxy]
urls = []
[[jobs]]
name = "b"
[[jobs.rules]]
x = 1
[[jobs.rules]]
x = 2
[other]
name = "c"
"""


def test_each_table_of_an_array_knows_its_own_lines() -> None:
    first, second = table(LIST).tables("jobs")

    assert [each.problem("is wrong", "name").line for each in (first, second)] == [2, 6]
    assert first.problem("is wrong", "proxy", "urls") == Problem("config.toml", 4, "jobs[1].proxy.urls", "is wrong")
    assert second.problem("is missing", "url") == Problem("config.toml", 5, "jobs[2].url", "is missing")
    assert [each.line_of("x") for each in second.tables("rules")] == [8, 10]
    assert table(LIST).table("other").line_of("name") == 12


def test_an_array_may_stand_in_one_line_and_hold_what_is_no_table() -> None:
    inline = table('x = 1\njobs = [{ name = "a" }, 5, { name = "b" }]')

    assert [each.path for each in inline.tables("jobs")] == [("jobs[1]",), ("jobs[3]",)]
    assert table("jobs = 5").tables("jobs") == []
