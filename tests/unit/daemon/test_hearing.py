"""This daemon's node, as it presents itself to others, and what it does about what they have committed."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.build import build_node, has_content, place_of, reachable_url
from spyweb.daemon.serve import HEAR_S, busy_slots, hear_others, prepare_for_slots
from spyweb.errors import StoreError
from spyweb.ownership import CHIEF, Slot
from spyweb.runs.live import LiveJobs
from spyweb.settings.sections import ServerSettings
from spyweb.store.postgres.bell import PARTS
from spyweb.subjects.when.service import MaintenanceService
from spyweb.web.access.keys import AccessService
from tests.fakes.clock import FakeClock
from tests.fakes.harness import make_job

SENDING = Slot("", 7)
ON_BEAT = ["changes", "keys", "locks", "messages", "plan", "windows"]


class Parts:
    """The parts of a daemon, each of which notes that it was asked to look."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.trouble: Exception | None = None
        self.alerts = SimpleNamespace(wake=self.note("plan"), load=self.read("subjects"), planning=asyncio.Lock())
        work = SimpleNamespace(hear=self.read("runs"))
        self.node: Any = SimpleNamespace(work=work, nodes=SimpleNamespace(bell=SimpleNamespace()))
        self.clock = FakeClock()
        runtime = SimpleNamespace(
            clock=self.clock,
            outbox_sender=SimpleNamespace(look=self.note("messages"), busy_slots=lambda: {SENDING}),
            world=SimpleNamespace(locks=SimpleNamespace(look=self.note("locks"))),
        )
        services = {
            AccessService: SimpleNamespace(load=self.read("keys")),
            MaintenanceService: SimpleNamespace(load=self.read("windows")),
        }
        self.daemon: Any = SimpleNamespace(
            runtime=runtime,
            alerts=self.alerts,
            signs=SimpleNamespace(load=self.read("signs")),
            channel_checker=SimpleNamespace(wake=self.note("channels")),
            triggers=SimpleNamespace(wake=self.note("changes")),
            services=services,
        )

    def note(self, what: str) -> Any:
        return lambda: self.story.append(what)

    def read(self, what: str) -> Any:
        async def read() -> None:
            self.story.append(what)
            if self.trouble:
                raise self.trouble

        return read

    def hear(self, *parts: str) -> None:
        self.node.nodes.bell.hear(parts)

    async def heard(self, seconds: float = HEAR_S) -> list[str]:
        await self.clock.turn(seconds)
        heard, self.story = sorted(self.story), []
        return heard


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    parts = Parts()
    task = asyncio.create_task(hear_others(parts.daemon, parts.node))
    await parts.clock.turn()
    yield parts
    task.cancel()


async def test_each_word_of_the_bell_has_those_look_whom_it_concerns_and_a_beat_all_of_them(parts: Parts) -> None:
    looks = {}
    for part in PARTS:
        parts.hear(part)
        looks[part] = await parts.heard()
    assert looks == {
        "events": ["changes"],
        "outbox": ["messages"],
        "locks": ["locks"],
        "incidents": ["plan", "windows"],
        "keys": ["keys"],
        "runs": ["runs"],
    }
    parts.node.beaten()
    assert await parts.heard() == ON_BEAT
    parts.node.gained()
    assert await parts.heard() == sorted([*ON_BEAT, "channels"])


async def test_whatever_others_commit_they_look_at_once_and_then_ten_times_a_second(parts: Parts) -> None:
    parts.hear("events")
    assert await parts.heard(0) == ["changes"]
    looks = []
    for _ in range(20):
        parts.hear("events")
        looks += await parts.heard(HEAR_S / 10)
    assert len(looks) == 2


@pytest.mark.parametrize("trouble", [StoreError("away"), ValueError("of a later version")])
async def test_what_can_not_be_read_is_read_again_with_the_next_word(parts: Parts, trouble: Exception) -> None:
    parts.trouble = trouble
    with capture_logs() as lines:
        parts.hear("keys", "locks")
        assert await parts.heard() == ["keys", "locks"]
    assert [line["reason"] for line in lines] == [str(trouble)]
    parts.trouble = None
    parts.node.beaten()
    assert await parts.heard() == ON_BEAT


async def test_a_slot_that_comes_is_prepared_for_and_one_that_is_used_is_kept(parts: Parts) -> None:
    await prepare_for_slots(parts.daemon)
    assert await parts.heard() == ["signs", "subjects"]
    assert busy_slots(parts.daemon) == {SENDING}
    async with parts.alerts.planning:
        assert busy_slots(parts.daemon) == {SENDING, CHIEF}


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (ServerSettings(), ""),
        (ServerSettings(host="localhost"), ""),
        (ServerSettings(host="::1"), ""),
        (ServerSettings(host="10.0.0.7", enabled=False), ""),
        (ServerSettings(host="10.0.0.7", port=80, tls_cert="tls.pem"), "https://10.0.0.7:80"),
        (ServerSettings(host="fra.example"), "http://fra.example:7979"),
        (ServerSettings(host="0.0.0.0"), f"http://{platform.node()}:7979"),
    ],
)
def test_other_nodes_get_the_address_of_a_server_that_they_reach(server: ServerSettings, url: str) -> None:
    assert reachable_url(server) == url


def test_where_the_project_serves_content_it_is_the_address_of_the_dashboard_beside(tmp_path: Path) -> None:
    assert not has_content(tmp_path)
    (tmp_path / "ui").mkdir()
    server = ServerSettings(host="10.0.0.7", port=80)
    assert reachable_url(server, has_content(tmp_path)) == "http://10.0.0.7:81"
    assert reachable_url(replace(server, dashboard_port=9), True) == "http://10.0.0.7:9"


def test_each_data_directory_is_a_place_of_its_own_whatever_leads_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert place_of(tmp_path / "data") == place_of(tmp_path / "link")
    assert place_of(tmp_path / "data") != place_of(tmp_path / "other")


async def test_a_node_knows_the_pools_of_its_jobs_and_which_files_they_have() -> None:
    live = LiveJobs()
    store = SimpleNamespace(nodes=object(), runs=None, on_fenced=lambda _call: None)
    runtime: Any = SimpleNamespace(
        store=store, live=live, settings=SimpleNamespace(cluster=None), runner=None, clock=FakeClock()
    )
    node = build_node(runtime, *[cast("Any", None)] * 2)
    assert node is not None
    for job in (make_job("train", labels=("gpu",)), make_job("off", node="fra", enabled=False)):
        before = node.folder
        live.add(job)
        live.link()
        assert node.folder != before
    assert node.pools == frozenset({"label:gpu", "node:fra"})
    assert node.wanted == frozenset({"label:gpu"})
