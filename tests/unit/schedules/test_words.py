"""Cron expressions in words; tests/property/test_cron_words.py holds the words against the due times."""

from __future__ import annotations

import pytest

from spyweb.schedules.words import cron_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("@hourly", "every hour"),
        ("5 * * * *", "at :05 every hour"),
        ("7,37 * * * *", "at :07 and :37 every hour"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("0 3 * * *", "at 03:00 every day"),
        ("0 9,17 * * *", "at 09:00 and 17:00 every day"),
        ("0 3 * * 1-5", "at 03:00, Monday to Friday"),
        ("0 5 * * SUN", "at 05:00, on Sundays"),
        ("0 0 * * 7", "at 00:00, on Sundays"),
        ("0 9 * * 1,4", "at 09:00, on Mondays and Thursdays"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45, Monday to Friday"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("0 */2 * * *", "every 2 hours"),
        ("0 0 1 * *", "at 00:00, on the 1st of every month"),
        ("0 0 L * *", "at 00:00, on the last day of every month"),
        ("0 3 1 1 *", "at 03:00, on the 1st of January"),
        ("30 4 2,11,22,23 * *", "at 04:30, on the 2nd, 11th, 22nd and 23rd of every month"),
        ("0 12 * 1,7 *", "at 12:00, every day in January and July"),
        ("0 12 * 7 1", "at 12:00, on Mondays in July"),
        ("0 12 */1 * 1", "at 12:00, on Mondays"),
        ("0 12 19 * 0-6", "at 12:00 every day"),  # without a star it is the 19th or any day of the week
        ("0 12 1-31 7 1", "at 12:00, every day in July"),
    ],
)
def test_an_expression_that_has_short_words_is_said_in_them(expression: str, words: str) -> None:
    assert cron_words(expression) == words


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 * * FRI#2", "0 0 * * 5L", "0 0 1 * 5", "0 0 LW * *", "1-59/2 * * * *", "3 */5 * * *", "5 0 3 * * *",
        "0 0 1-15 * *", "0 0 1 1-6 *", "0,1,2,3,4 1,2 * * *",
    ],
)  # fmt: skip
def test_an_expression_that_has_none_is_left_as_it_is(expression: str) -> None:
    assert cron_words(expression) is None
