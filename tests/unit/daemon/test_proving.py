"""What the end of an execution says about the files; tests/integration/test_monitor_load.py executes some."""

from __future__ import annotations

import pytest

from spyweb.daemon.build import refuse_failure
from spyweb.errors import PoolError, Problem, ScriptError
from spyweb.lua.session import Code
from spyweb.model import Ending, Failure, JobId, Outcome

LONG = f"jobs/{'w' * 60}"
CODE = Code(job=JobId("w"), generation=1, chunk="jobs/w/hooks.lua", source=b"x = 1", more=((f"{LONG}/defer.lua", b""),))


@pytest.mark.parametrize(
    ("told", "file", "line", "reason"),
    [
        ("jobs/w/defer.lua:3: boom: 5: x", "jobs/w/defer.lua", 3, "boom: 5: x"),
        (f"...{'w' * 46}/defer.lua:3: boom", f"{LONG}/defer.lua", 3, "boom"),  # as Lua cuts a long path
        ("took longer than 30s", "jobs/w/hooks.lua", None, "took longer than 30s"),  # without a place the first file
    ],
)
def test_an_error_is_told_with_its_file_and_line(told: str, file: str, line: int | None, reason: str) -> None:
    refuse_failure(CODE, Ending(outcome=Outcome.SUCCESS))
    with pytest.raises(ScriptError) as caught:
        refuse_failure(CODE, Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=told))
    assert caught.value.problem == Problem(file, line, None, f"failed while it was loaded: {reason}")


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.STOPPED])
def test_a_worker_that_died_says_nothing_about_the_files(outcome: Outcome) -> None:
    with pytest.raises(PoolError, match="was not executed to its end: its worker died"):
        refuse_failure(CODE, Ending(outcome=outcome, reason="its worker died"))
