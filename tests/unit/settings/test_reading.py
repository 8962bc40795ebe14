from __future__ import annotations

from unittest.mock import patch

import pytest
from msgspec.structs import replace

from spyweb.errors import Problem
from spyweb.settings import reading as reading_module
from spyweb.settings.reading import NEIGHBOURS, TEXT, Names, Reading, Tables, list_of, nearest, shaped, table_of
from spyweb.settings.tables import TomlTable
from spyweb.settings.values import text, whole


def source(name: str, **values: object) -> TomlTable:
    return TomlTable(values=values, file=name)


def reading_of(*sources: TomlTable) -> tuple[Reading, list[Problem], list[Problem]]:
    """Return a reading with the lists of the problems and warnings that it will find."""
    problems, warnings = list[Problem](), list[Problem]()
    return Reading(sources, problems, warnings), problems, warnings


def test_a_value_that_no_source_has_is_the_default() -> None:
    assert Reading([source("only")], []).take("port", whole(0, 9), 7) == 7


def test_a_wrong_value_is_a_problem_even_where_a_stronger_one_wins() -> None:
    reading, problems, _ = reading_of(source("strong", port=1), source("weak", port="x"))
    assert reading.take("port", whole(0, 9), 0) == 1
    assert [problem.file for problem in problems] == ["weak"]


def take_step(read: Reading) -> tuple[int, str]:
    read.require("to")
    return read.take("after", whole(0, 9), 0), read.take("to", text, "")


@shaped(TEXT)
def by_name(value: object) -> tuple[int, str]:
    return 0, text(value)


STEPS = Tables(take=take_step, expected='a list of tables such as { to = "x" }', instead=by_name, most=3)


def test_all_that_is_wrong_with_tables_is_told_each_by_its_number() -> None:
    given = [{"after": "x", "too": 1}, {"to": 5}, 7, {}]
    reading, problems, _ = reading_of(source("strong", steps=given), source("weak", steps=["b", {"to": "a"}]))
    assert reading.tables("steps", STEPS, ()) == ((0, "b"), (0, "a"))
    reading.refuse("is odd", "steps[2]", "to")
    assert [str(problem).removeprefix("strong: ") for problem in problems] == [
        "steps[4]: there are at most 3 of them",
        "steps[1].to: is required",
        "steps[1].after: expected a whole number, not 'x'",
        'steps[1].too: unknown key; did you mean "to"?',
        "steps[2].to: expected text, not 5",
        "steps[3]: expected text, not 7",
        "steps[2].to: is odd",
    ]


def test_one_table_stands_without_a_list_only_where_it_may() -> None:
    reading, problems, _ = reading_of(source("file", steps={"to": "a"}))
    assert reading.tables("steps", STEPS, None) is None
    assert [str(each) for each in problems] == [
        """file: steps: expected a list of tables such as { to = "x" }, not a table"""
    ]
    assert STEPS.read(source("file", steps=1 << 20_000), "steps", problems) is None
    assert problems[1].reason.endswith("not a number of more than 64 bits")
    assert reading.tables("steps", replace(STEPS, alone=True), None) == ((0, "a"),)


def test_tables_say_what_they_take() -> None:
    one = table_of({"after": {**whole(0, 9).schema, "default": 0}, "to": TEXT}, "to")
    each = {"anyOf": [TEXT, one]}
    assert STEPS.schema == list_of(each, maxItems=3)
    assert replace(STEPS, alone=True).schema == {"anyOf": [TEXT, one, list_of(each, maxItems=3)]}
    assert replace(STEPS, most=1).schema == each


def test_keys_that_nobody_took_are_unknown_and_get_the_nearest_right_name() -> None:
    reading, problems, _ = reading_of(source("file", timeot=1, zzz=2))
    reading.take("timeout", text, "")
    reading.finish()
    assert [str(problem) for problem in problems] == [
        'file: timeot: unknown key; did you mean "timeout"?',
        "file: zzz: unknown key",
    ]


def test_the_nearest_name_knows_other_programs_words_and_ignores_case() -> None:
    assert nearest("interval", ["every", "cron"]) == '; did you mean "every"?'
    assert nearest("TimeOut", ["timeout"]) == '; did you mean "timeout"?'


def forgiving(**values: object) -> TomlTable:
    return TomlTable(values=values, file="own", forgiving=True)


def test_what_nobody_takes_is_a_warning_where_the_source_forgives_it() -> None:
    reading, problems, warnings = reading_of(source("strict", a=1), forgiving(b=1))
    reading.finish()
    assert [str(problem) for problem in problems] == ["strict: a: unknown key"]
    assert [str(warning) for warning in warnings] == ["own: b: unknown key"]


def test_a_table_below_is_read_key_by_key_out_of_all_sources() -> None:
    reading, _problems, _ = reading_of(
        source("strong", proxy={"port": 1}), source("weak", proxy={"port": 2, "host": "x"})
    )
    below = reading.below("proxy")
    assert (below.take("port", whole(0, 9), 0), below.take("host", text, "")) == (1, "x")
    assert below.take("zone", text, "none") == "none"


def test_a_problem_below_names_the_whole_way() -> None:
    reading, problems, _ = reading_of(source("file", proxy={"port": "x", "pert": 1}))
    reading.below("proxy").take("port", whole(0, 9), 0)
    reading.finish()
    assert [str(problem) for problem in problems] == [
        "file: proxy.port: expected a whole number, not 'x'",
        'file: proxy.pert: unknown key; did you mean "port"?',
    ]


def test_what_should_be_a_table_and_is_none_is_a_problem() -> None:
    reading, problems, _ = reading_of(source("file", proxy="http://x"))
    assert reading.below("proxy").take("port", whole(0, 9), 7) == 7
    assert [str(problem) for problem in problems] == ["file: proxy: expected a table, [proxy]"]


def test_what_shows_later_is_told_of_the_source_that_has_the_key_or_else_of_the_own_file() -> None:
    reading, problems, _ = reading_of(source("outside", a=1), forgiving(b=2))
    reading.refuse("is odd", "a")
    reading.refuse("is required", "c")
    assert [str(problem) for problem in problems] == ["outside: a: is odd", "own: c: is required"]


def test_a_doubt_weighs_as_much_as_its_source_is_strict() -> None:
    reading, problems, warnings = reading_of(source("outside", a=1), forgiving(b=2))
    reading.doubt("is odd", "a")
    reading.doubt("is odd", "b")
    assert ([problem.file for problem in problems], [warning.file for warning in warnings]) == (["outside"], ["own"])


MANY = [f"{kind}-{number:04}" for kind in ("prices", "shop", "weather") for number in range(1_000)]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bakcup", "backup"),
        ("BACKUP", "backup"),
        ("Pirces", "prices"),
        ("", None),
        ("zebra", None),
        ("europe/berln", "Europe/Berlin"),
    ],
)
def test_the_name_that_is_most_alike_is_found_or_none(name: str, meant: str | None) -> None:
    assert Names(["prices", "backup", "Europe/Berlin"]).nearest(name) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("wether-0371", "weather-0371"),
        ("xhop-0999", "shop-0999"),
        ("prices-05x0", "prices-0500"),
        ("shop-0371x", "shop-0371"),
    ],
)
def test_among_very_many_it_is_found_by_its_beginning_or_its_end(name: str, meant: str) -> None:
    found = Names(MANY).nearest(name)
    assert found is not None
    assert found[:6] == meant[:6]


def test_only_a_few_of_very_many_are_compared() -> None:
    with patch.object(reading_module, "get_close_matches", return_value=[]) as compare:
        Names(MANY).nearest("prices-05x0")
    (_, compared), _ = compare.call_args
    assert len(compared) <= 4 * NEIGHBOURS
