from __future__ import annotations

from msgspec.structs import replace

from spyweb.model import HistoryRule, JobId
from spyweb.specs.watches import history_rules
from tests.fakes.daemon_service import make_spec

MANY, WEEK = HistoryRule(versions=20), HistoryRule(age_ms=604_800_000)


def test_a_job_decides_for_its_own_values_and_config_toml_for_the_others() -> None:
    silent, keeper = make_spec(JobId("silent")), replace(make_spec(JobId("keeper")), history=WEEK)
    configured = {"state": MANY, "job:silent": MANY, "job:keeper": MANY}

    rules = history_rules(configured, [silent, keeper])

    assert rules == {"state": MANY, "job:silent": MANY, "job:keeper": WEEK}
