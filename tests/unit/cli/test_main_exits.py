"""How a command ends."""

from __future__ import annotations

from spyweb.cli.main import exit_code_of
from spyweb.errors import ExitCode, OpError, Refused


def test_the_codes_are_those_of_the_manual() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "INTERRUPTED": 130,
        "UNREAD": 141,
    }


def test_what_went_wrong_in_a_job_is_told_from_what_was_asked_wrongly() -> None:
    assert exit_code_of(OpError()) is ExitCode.FAILED
    assert exit_code_of(Refused()) is ExitCode.USAGE
