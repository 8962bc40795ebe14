"""What is wrong beside failing runs is told by a real daemon: once, over a kill and a restart, until it is over."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.model import Cron, Cursor, JobId, Never, Schedule
from spyweb.schedules.due import schedule_text
from spyweb.settings.units import DAY_MS
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.store import open_store
from tests.fakes.hook import Hook, open_hook
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PATIENCE = 60.0  # a sign must last, and a message waits for others
YEARLY = Cron(expression="0 0 1 1 *", timezone="UTC")
CONFIG = """[channels.ops]
webhook = "{url}"
[alerts]
to = ["ops"]
[jobs.yearly.alerts]
late_after = "1h"
[jobs.quiet.alerts]
no_success_for = "1d"
"""


def known_for_long(project: Project, **schedules: Schedule) -> None:
    """Leave a database in which these jobs have been known for two years, and have never run."""
    since_ms = RealClock().now_ms() - 730 * DAY_MS

    async def record() -> None:
        (project.root / "data").mkdir(mode=0o700)
        store = await open_store(project.root / "data/spyweb.db", clock=RealClock())
        cursors = [
            Cursor(job=JobId(name), due_ms=since_ms, schedule=schedule_text(schedule), active_since_ms=since_ms)
            for name, schedule in schedules.items()
        ]
        await store.runs.record(Change(cursors=cursors))
        await store.close()

    asyncio.run(record())


def told(hook: Hook) -> list[tuple[str, str, str]]:
    items = [item for body in hook.messages for item in json.loads(body)["items"]]
    return sorted((item["subject"], item["reason"], item["kind"]) for item in items)


def wait_for(hook: Hook, count: int) -> list[tuple[str, str, str]]:
    eventually(lambda: len(told(hook)) >= count, f"{count} messages, not {told(hook)}", PATIENCE)
    return told(hook)


OPENED = [("job:broken", "broken", "opened"), ("job:quiet", "silent", "opened"), ("job:yearly", "late", "opened")]


def test_what_is_broken_late_and_silent_is_told_once_over_a_kill_and_its_end_is_told(tmp_path: Path) -> None:
    project = Project(tmp_path, is_quick=True)
    with open_hook() as hook:
        project.save("config.toml", CONFIG.format(url=hook.url))
        project.job("broken", "return (")
        project.job("quiet", "return 1")
        project.job("yearly", "return 1", 'cron = "0 0 1 1 *"\ntimezone = "UTC"\nmisfire = "skip"')
        known_for_long(project, quiet=Never(), yearly=YEARLY)
        with project.daemon() as daemon:
            assert wait_for(hook, 3) == OPENED
            daemon.kill()
        with project.daemon() as daemon:
            time.sleep(2.5)  # it looks several times, and tells nothing again
            assert told(hook) == OPENED
            daemon.kill()
        project.job("broken", "return 1")  # while no daemon runs
        with project.daemon():
            for job in ("quiet", "yearly"):
                project.result(job)
            everything = wait_for(hook, 6)
            closed = [(subject, reason, "closed") for subject, reason, _ in OPENED]
            assert everything == sorted([*OPENED, *closed])
