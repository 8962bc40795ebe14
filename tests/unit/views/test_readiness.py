"""What keeps a daemon from being ready."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.views.health import Vitals
from spyweb.views.readiness import view_readiness
from tests.fakes.daemon_service import make_stats, make_vitals

NOBODY = replace(make_vitals().pool, answering=0)


def test_a_daemon_whose_parts_make_progress_is_ready() -> None:
    readiness = view_readiness(make_vitals(), stage="", probe="")
    assert (readiness.ready, readiness.reasons) == (True, [])


@pytest.mark.parametrize(
    ("vitals", "stage", "probe", "reason"),
    [
        (make_vitals(), "the daemon is stopping", "", "the daemon is stopping"),
        (make_vitals(), "", "the writer has not answered within 2 s", "the writer has not answered within 2 s"),
        (make_vitals(scheduler_lag_ms=61_000), "", "", "the scheduler is 1m1s behind"),
        (make_vitals(refused_ms=9_000), "", "", "no due run could be claimed for 9s: the log says why"),
        (make_vitals(pool=NOBODY), "", "", "no worker answers"),
        (make_vitals(store=make_stats(failed="data/spyweb.db: full")), "", "x", "nothing is stored: spyweb.db: full"),
    ],
)
def test_each_part_that_makes_no_progress_is_a_reason(vitals: Vitals, stage: str, probe: str, reason: str) -> None:
    readiness = view_readiness(vitals, stage=stage, probe=probe)
    assert (readiness.ready, readiness.reasons) == (False, [reason])
