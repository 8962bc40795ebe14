"""Records as a user sees them: the same by the command line, with a daemon and without, and over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.model import JobId
from spyweb.store.sqlite.store import open_store
from tests.fakes.findings import item
from tests.fakes.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.job("prices", "return true")
    asyncio.run(record(tmp_path / "data"))
    return project


async def record(data_dir: Path) -> None:
    """As a cycle does."""
    data_dir.mkdir(mode=0o700)
    store = await open_store(data_dir / "spyweb.db", clock=RealClock())
    await store.records.add(JobId("prices"), [item(f"Tea {number}", matches=["sale"]) for number in range(3)])
    await store.close()


def test_everybody_is_shown_the_same_records(project: Project) -> None:
    project.environment["SPYWEB_API_KEY"] = "secret"
    offline = project.ask("records", "prices")
    with project.daemon() as daemon:
        assert project.ask("records", "prices") == offline
        page = daemon.ask("/api/records?job_id=prices&limit=2", X_SpyWeb_Key="secret").json

    assert [each["title"] for each in offline] == ["Tea 2", "Tea 1", "Tea 0"]
    assert page == {"records": offline[:2], "limit": 2, "has_more": True, "next_after": offline[1]["timestamp"]}
