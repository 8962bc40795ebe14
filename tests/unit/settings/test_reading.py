from __future__ import annotations

from spyweb.errors import Problem
from spyweb.settings.reading import PartError, Reading, SettingsSource, nearest
from spyweb.settings.values import duration, text, whole


def source(name: str, **values: object) -> SettingsSource:
    return SettingsSource(values, lambda reason, *keys: Problem(name, None, ".".join(keys), reason))


def test_the_strongest_source_wins() -> None:
    reading = Reading([source("strong", port=1), source("weak", port=2)], [])

    assert reading.take("port", whole(0, 9), 0) == 1


def test_a_value_that_no_source_has_is_the_default() -> None:
    assert Reading([source("only")], []).take("port", whole(0, 9), 7) == 7


def test_a_wrong_value_is_a_problem_even_where_a_stronger_one_wins() -> None:
    problems: list[Problem] = []
    reading = Reading([source("strong", port=1), source("weak", port="x")], problems)

    assert reading.take("port", whole(0, 9), 0) == 1
    assert [problem.file for problem in problems] == ["weak"]


def test_one_of_several_tables_is_named_by_its_number() -> None:
    def second(_value: object) -> int:
        raise PartError("is wrong", 2, "after")

    problems: list[Problem] = []
    reading = Reading([source("strong", steps=[1, 2]), source("weak", other=1)], problems)
    assert reading.take("steps", second, 7) == 7
    reading.refuse_part("is wrong too", "steps", 1, "to")
    assert [str(problem) for problem in problems] == [
        "strong: steps[2].after: is wrong",
        "strong: steps[1].to: is wrong too",
    ]


def test_keys_that_nobody_took_are_unknown_and_get_the_nearest_right_name() -> None:
    problems: list[Problem] = []
    reading = Reading([source("file", timeot=1, zzz=2)], problems)
    reading.take("timeout", text, "")
    reading.finish()

    assert [str(problem) for problem in problems] == [
        'file: timeot: unknown key; did you mean "timeout"?',
        "file: zzz: unknown key",
    ]


def test_the_nearest_name_knows_other_programs_words() -> None:
    assert nearest("interval", ["every", "cron"]) == '; did you mean "every"?'


def test_the_nearest_name_ignores_case() -> None:
    assert nearest("TimeOut", ["timeout"]) == '; did you mean "timeout"?'


def forgiving(**values: object) -> SettingsSource:
    return SettingsSource(values, lambda reason, *keys: Problem("own", None, ".".join(keys), reason), forgiving=True)


def test_what_nobody_takes_is_a_warning_where_the_source_forgives_it() -> None:
    problems: list[Problem] = []
    warnings: list[Problem] = []
    reading = Reading([source("strict", a=1), forgiving(b=1)], problems, warnings)
    reading.finish()

    assert [str(problem) for problem in problems] == ["strict: a: unknown key"]
    assert [str(warning) for warning in warnings] == ["own: b: unknown key"]


def test_a_table_below_is_read_key_by_key_out_of_all_sources() -> None:
    problems: list[Problem] = []
    reading = Reading([source("strong", proxy={"port": 1}), source("weak", proxy={"port": 2, "host": "x"})], problems)
    below = reading.below("proxy")
    assert (below.take("port", whole(0, 9), 0), below.take("host", text, "")) == (1, "x")
    assert below.take("zone", text, "none") == "none"


def test_a_problem_below_names_the_whole_way() -> None:
    problems: list[Problem] = []
    reading = Reading([source("file", proxy={"port": "x", "pert": 1})], problems)
    reading.below("proxy").take("port", whole(0, 9), 0)
    reading.finish()

    assert [str(problem) for problem in problems] == [
        "file: proxy.port: expected a whole number, not 'x'",
        'file: proxy.pert: unknown key; did you mean "port"?',
    ]


def test_what_should_be_a_table_and_is_none_is_a_problem() -> None:
    problems: list[Problem] = []
    below = Reading([source("file", proxy="http://x")], problems).below("proxy")

    assert below.take("port", whole(0, 9), 7) == 7
    assert [str(problem) for problem in problems] == ["file: proxy: expected a table, [proxy]"]


def test_what_shows_later_is_told_of_the_source_that_has_the_key_or_else_of_the_own_file() -> None:
    problems: list[Problem] = []
    reading = Reading([source("outside", a=1), forgiving(b=2)], problems)
    reading.refuse("is odd", "a")
    reading.refuse("is required", "c")

    assert [str(problem) for problem in problems] == ["outside: a: is odd", "own: c: is required"]


def test_a_doubt_weighs_as_much_as_its_source_is_strict() -> None:
    problems: list[Problem] = []
    warnings: list[Problem] = []
    reading = Reading([source("outside", a=1), forgiving(b=2)], problems, warnings)
    reading.doubt("is odd", "a")
    reading.doubt("is odd", "b")

    assert ([problem.file for problem in problems], [warning.file for warning in warnings]) == (["outside"], ["own"])


def test_a_reading_knows_what_it_was_asked_for_and_what_each_key_takes() -> None:
    reading = Reading([source("file")], [])
    reading.take("port", whole(0, 9), 5)
    reading.take("delay", duration(), 90_000)
    reading.below("proxy").take("host", text, None)

    schema = reading.schema()
    assert list(schema) == ["port", "delay", "proxy"]
    assert schema["port"] == {"type": "integer", "minimum": 0, "maximum": 9, "default": 5}
    assert schema["delay"]["default"] == "1m30s"
    assert schema["proxy"] == {
        "type": "object",
        "properties": {"host": {"type": "string"}},
        "additionalProperties": False,
    }
