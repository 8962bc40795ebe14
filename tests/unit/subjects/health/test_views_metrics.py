from __future__ import annotations

import pytest

from spyweb.model import Outcome
from spyweb.specs.parse import job_id
from spyweb.subjects.health.views import OTHERS, is_failing
from tests.fakes.daemon_service import make_run


@pytest.mark.parametrize(
    ("outcome", "failing"), [(Outcome.SUCCESS, False), (Outcome.FAILED, True), (Outcome.LOST, True), (None, None)]
)
def test_a_job_is_failing_while_its_latest_run_has_failed(outcome: Outcome | None, failing: bool | None) -> None:
    assert is_failing(make_run(outcome=outcome)) is failing
    assert is_failing(None) is None


def test_no_job_can_have_the_name_of_the_others() -> None:
    assert job_id(OTHERS) != OTHERS
