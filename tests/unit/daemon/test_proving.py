"""What the end of an execution says about the files; tests/integration/test_monitor_load.py executes some."""

from __future__ import annotations

import pytest

from spyweb.daemon.server import refuse_failure
from spyweb.errors import PoolError, Problem, ScriptError
from spyweb.lua.session import Code
from spyweb.model import Ending, Failure, JobId, Outcome

CODE = Code(job=JobId("w"), generation=1, chunk="jobs/w/hooks.lua", source=b"x = 1")


def failed(reason: str, failure: Failure = Failure.ERROR) -> Ending:
    return Ending(outcome=Outcome.FAILED, failure=failure, reason=reason)


def test_files_that_were_executed_are_right() -> None:
    refuse_failure(CODE, Ending(outcome=Outcome.SUCCESS))


def test_an_error_is_told_with_its_file_and_line() -> None:
    with pytest.raises(ScriptError) as caught:
        refuse_failure(CODE, failed("jobs/w/defer.lua:3: boom: 5: x"))
    assert caught.value.problem == Problem("jobs/w/defer.lua", 3, None, "failed while it was loaded: boom: 5: x")


def test_a_file_with_a_long_path_is_told_whole() -> None:
    long = f"jobs/{'w' * 60}"
    code = Code(job=JobId("w"), generation=1, chunk=f"{long}/hooks.lua", source=b"", more=((f"{long}/defer.lua", b""),))
    with pytest.raises(ScriptError) as caught:
        refuse_failure(code, failed(f"...{'w' * 46}/defer.lua:3: boom"))
    assert caught.value.problem.file == f"{long}/defer.lua"


def test_a_failure_without_a_place_is_that_of_the_first_file() -> None:
    with pytest.raises(ScriptError) as caught:
        refuse_failure(CODE, failed("took longer than 30s", Failure.TIMEOUT))
    assert caught.value.problem == Problem(
        "jobs/w/hooks.lua", None, None, "failed while it was loaded: took longer than 30s"
    )


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.STOPPED])
def test_a_worker_that_died_says_nothing_about_the_files(outcome: Outcome) -> None:
    with pytest.raises(PoolError, match="was not executed to its end: its worker died"):
        refuse_failure(CODE, Ending(outcome=outcome, reason="its worker died"))
