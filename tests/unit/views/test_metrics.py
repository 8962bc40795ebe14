from __future__ import annotations

from spyweb.specs.parse import job_id
from spyweb.views.metrics import OTHERS


def test_no_job_can_have_the_name_of_the_others() -> None:
    assert job_id(OTHERS) != OTHERS
