"""A save every 50 ms, broken ones among them: no run is lost, and the last version wins."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.database_reader import DatabaseReader
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PERIOD_MS = 100
SETTINGS = f'every = "{PERIOD_MS}ms"\nmisfire = "all"\noverlap = "queue"'
SAVE_EVERY = 0.05  # seconds


def script(version: int) -> str:
    if version % 3 == 2:
        return f"this is not Lua {version}"
    return f'store_set("version", "{version}")\nstore_set("ran {version}", "yes")\n'


def test_a_storm_of_saves_loses_no_run_and_ends_with_the_last_version(tmp_path: Path, torture: bool) -> None:
    project, reader = Project(tmp_path), DatabaseReader(tmp_path)
    saves = 1200 if torture else 30
    project.job("storm", script(0), SETTINGS)
    with project.daemon() as daemon:
        project.ended("storm")
        for version in range(saves):
            project.job("storm", script(version), SETTINGS)
            time.sleep(SAVE_EVERY)
        last = str(saves * 3)  # whole again
        project.job("storm", script(saves * 3), SETTINGS)
        eventually(lambda: reader.value("job:storm", "version") == last.encode(), "the last version")
        assert daemon.stop() == 0
    assert reader.gaps("storm", PERIOD_MS) == []
    assert reader.outcomes("storm").keys() <= {"success", "stopped", "missed"}, reader.outcomes("storm")
    ran = [version for version in range(saves) if reader.value("job:storm", f"ran {version}")]
    assert not [version for version in ran if version % 3 == 2]
    assert len(ran) > saves / 10, "hardly any save was taken up while the storm went on"
