from __future__ import annotations

from spyweb.errors import Problem
from spyweb.settings.reading import Reading, Source, nearest
from spyweb.settings.values import text, whole


def source(name: str, **values: object) -> Source:
    return Source(values, lambda reason, key: Problem(name, None, key, reason))


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
