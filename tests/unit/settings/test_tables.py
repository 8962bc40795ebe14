from __future__ import annotations

import tomllib

import pytest

from spyweb.errors import Problem
from spyweb.settings.tables import TomlTable, parse_table

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


def table(text: str, first_line: int = 1) -> TomlTable:
    parsed = parse_table(text, "config.toml", first_line)
    assert isinstance(parsed, TomlTable)
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
    assert table("a = '\u2028'\nb = 2", first_line=10).line_of("b") == 11


def test_a_table_that_is_not_there_is_empty() -> None:
    assert table(TEXT).table("absent", "deeper").values == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *[("a = 1\nb = ", 2), ("a = 1\nb = = 2\nc = 3", 2), ("a = 1\na = 2", 2), ('a = """\n\n', 2), ("[[[", 1)],
        ('# \u2028\na = "\x85', 2),
    ],
)
def test_broken_toml_is_one_problem_with_its_line(text: str, line: int) -> None:
    problem = parse_table(text, "config.toml")
    assert isinstance(problem, Problem)
    assert problem.line == line
    assert problem.reason.startswith("not valid TOML: ")


def test_what_no_file_needs_is_refused_in_plain_words() -> None:
    assert str(parse_table(f"a = {'[' * 20_000}", "a.toml")) == "a.toml:1: not valid TOML: nested too deep"
    assert str(parse_table(f"a = {'9' * 5_000}", "a.toml")) == "a.toml:1: not valid TOML: a number is too long"


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
    first, second = table(LIST).tables("jobs", [])

    assert [each.problem("is wrong", "name").line for each in (first, second)] == [2, 6]
    assert first.problem("is wrong", "proxy", "urls") == Problem("config.toml", 4, "jobs[1].proxy.urls", "is wrong")
    assert second.problem("is missing", "url") == Problem("config.toml", 5, "jobs[2].url", "is missing")
    assert [each.line_of("x") for each in second.tables("rules", [])] == [8, 10]
    assert table(LIST).table("other").line_of("name") == 12


def test_an_array_may_stand_in_one_line_and_hold_what_is_no_table() -> None:
    inline = table('x = 1\njobs = [{ name = "a" }, 5, { name = "b" }]')
    assert [each.path for each in inline.tables("jobs", [])] == [("jobs[1]",), ("jobs[3]",)]
    assert table("jobs = 5").tables("jobs", []) == []


def test_a_key_of_one_of_several_tables_in_one_line_has_that_line() -> None:
    inline = table('x = 1\njobs = [{ name = "a" }, { name = "b" }]\n[other]\nrules = [{ y = 1 }]')
    assert [each.line_of("name") for each in inline.tables("jobs", [])] == [2, 2]
    assert inline.line_of("other", "rules[1]", "y") == 4
    assert inline.line_of("gone[1]", "y") is None


LONG = ".".join("a" * 33)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]",
        f"[[{LONG}]]",
        f"x = {{ {LONG} = 1 }}",
        f"x = [\n  {{ {LONG} = 1 }},\n]",
        "x = '#'\n" + " . ".join(['"a"', "'b'", "c"] * 11) + " = 1",
        f'x = """\n""\\""" """\n{LONG} = 1',
        f"x = '''\n'' '''''\n{LONG} = 1",
        f'x = "\\""\n{LONG} = 1',
    ],
)
def test_a_key_of_very_many_parts_is_refused_before_it_is_read(text: str) -> None:
    problem = parse_table(f"# {LONG}\n{text}", "config.toml")
    assert isinstance(problem, Problem)
    assert problem.reason == "a key has 33 parts, at most 32 are allowed"
    assert problem.line == 1 + next(number for number, line in enumerate(text.splitlines(), 1) if line.count(".") == 32)


@pytest.mark.parametrize(
    "text",
    [
        f'x = "{LONG}"',
        f"x = '{LONG}'",
        f'x = "\\"{LONG}"',
        f'"{LONG}" = 1',
        f"'{LONG}'.b = 1",
        f"x = 1 # {LONG}",
        f'x = """\n{LONG} = 1\n"" {LONG} \\""" {LONG}"""""',
        f"x = '''\n{LONG} = 1\n'' {LONG}'''''",
        f"x = [{', '.join(['1.5'] * 99)}]",
        f'x = [\n"""\n{LONG} = 1\n""",\n]',
        ".".join("a" * 32) + " = 1",
        "[" + ".".join("a" * 32) + "]\nb.c = 1.5",
        "x = [" + ", ".join("{ a.b = 1.5, c.d = 12:00:00.5 }" for _ in range(40)) + "]",
    ],
)
def test_dots_that_are_in_no_key_are_none_of_its_parts(text: str) -> None:
    assert dict(table(text).values) == tomllib.loads(text)
    table(text).line_of("x")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("every = 5m", 'text is written in quotes: every = "5m"'),
        ("every = never # by hand", 'text is written in quotes: every = "never"'),
        ("cron = */5 * * * *", 'text is written in quotes: cron = "*/5 * * * *"'),
        ("cron = @daily", 'text is written in quotes: cron = "@daily"'),
        ("enabled = yes", "expected true or false, not yes"),
        ("port = 1.2.3", "expected newline or end of document after a statement"),
        ("a = = 2", "invalid value"),
    ],
)
def test_a_value_without_its_quotes_is_told_with_them(line: str, reason: str) -> None:
    assert str(parse_table(f"x = 1\n{line}\ny = 2", "a.toml")) == f"a.toml:2: not valid TOML: {reason}"
