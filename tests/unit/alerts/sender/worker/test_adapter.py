"""What is said of a request that failed."""

from __future__ import annotations

import pytest

from spyweb.alerts.sender.worker.adapter import Met, describe


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("https://secret.example/token"), "ValueError"),
        (caused(ValueError("token"), KeyError("token")), "ValueError: KeyError"),
        (
            caused(ValueError("token"), ConnectionRefusedError(111, "Connection refused")),
            "ValueError: Connection refused",
        ),
        (ValueError(OSError(113, "No route to host")), "ValueError: No route to host"),
    ],
)
def test_an_error_is_told_by_its_kind_and_not_by_its_text(error: BaseException, said: str) -> None:
    assert describe(error) == said


def test_errors_that_name_each_other_are_told_once() -> None:
    error = ValueError()
    error.__cause__ = caused(KeyError(), error)
    assert describe(error).startswith("ValueError")


def test_the_first_failure_of_a_message_counts() -> None:
    met = Met()
    met.note_failure("answered 404")
    met.note_failure("answered 500")
    assert met.reason == "answered 404"
