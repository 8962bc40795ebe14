"""A status page of two jobs, with a mark in all that it must not show."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from msgspec.structs import replace

from spyweb.incidents.truth import Failed
from spyweb.model import JobId, RunId
from spyweb.settings.load import load_settings
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.uptime import JobUptime, UptimeSpan, bucket_of
from spyweb.store.sqlite.uptime import Uptimes
from spyweb.subjects.status.service import StatusService
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.harness import make_job
from tests.fakes.incidents import AT_MS, AT_ONCE

T = TypeVar("T")
MARK = "s3cr3t"
SITE, DATABASE = JobId("shop"), JobId("database")
CONFIG = f"""
[status_page]
title = "Example <status>"
public = true
groups = [{{ name = "Web", jobs = ["database", "shop"] }}]
logo = "{MARK}/logo.svg"
style = "{MARK}/own.css"
export = "{MARK}/out"
"""
DAYS = 90


class FakeUptimes(Uptimes):
    """Knows that the shop is up, and was down for a day; and that the database is down."""

    def __init__(self) -> None:
        self.reads = 0

    def read(
        self, jobs: Sequence[JobId], now_ms: int, spans: Iterable[str], days: int = 0
    ) -> Future[dict[JobId, JobUptime]]:
        self.reads += bool(days)
        span = UptimeSpan(up_ms=DAY_MS - HOUR_MS, down_ms=HOUR_MS, ok=9, latency={bucket_of(180): 9})
        known = {30: UptimeSpan(down_ms=DAY_MS), **dict.fromkeys(range(20), UptimeSpan())}
        whole = UptimeSpan(up_ms=DAY_MS)
        shown = {AT_MS - (days - number) * DAY_MS: known.get(number, whole) for number in range(days)}
        return done({job: JobUptime(up=job != DATABASE, spans=dict.fromkeys(spans, span), days=shown) for job in jobs})


def done(value: T) -> Future[T]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


async def make_status(root: Path, config: str = CONFIG) -> tuple[FakeDaemonService, StatusService]:
    """Make a service with two jobs, one of them down, whose marked secrets are wherever the store has a place."""
    (root / MARK).mkdir()
    (root / MARK / "logo.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (root / MARK / "own.css").write_text(".logo { width: 64px }")
    (root / "config.toml").write_text(config)
    service = FakeDaemonService(root=root)
    settings = load_settings(root, environ={}, flags={}).status_page
    service.store.uptime = cast("Uptimes", FakeUptimes())
    for job in (SITE, DATABASE):
        secrets = {"path": f"jobs/{MARK}.lua", "description": MARK, "tags": (MARK,), "node": MARK, "labels": (MARK,)}
        live = make_job(job, **secrets)
        live.spec = replace(live.spec, name="Our shop" if job == SITE else "Database")
        service.live.add(live)
    await fail_with(service, SITE)
    await service.incidents.acknowledge(1, MARK)
    await service.incidents.add_note(1, MARK, MARK, is_public=False)
    await service.incidents.add_note(1, "We <b>know</b>.\nSoon more.", MARK, is_public=True)
    await service.incidents.silence(SITE, HOUR_MS, MARK)
    windows = [Once(AT_MS + DAY_MS, AT_MS + DAY_MS + HOUR_MS), Once(AT_MS + 30 * DAY_MS, AT_MS + 31 * DAY_MS)]
    rules = [
        MaintenanceRule(window, (SITE, f"x_{MARK}"), MARK, (MARK,), frozenset({SITE}), 7, MARK) for window in windows
    ]
    calendar, store = MaintenanceCalendar(rules), service.store
    status = StatusService(
        lambda: settings, service.live, store, lambda: calendar, service.clock, root, "Europe/Berlin"
    )
    service.status = status
    return service, status


async def fail_with(service: FakeDaemonService, job: JobId) -> None:
    event = Failed(f"https://{MARK}.internal/ answered 500", {"late": MARK})
    happened = SubjectEvent(subject=f"job:{job}", event=event, policy=AT_ONCE, at_ms=AT_MS, run=RunId(987_654_321))
    await service.stored_incidents.note([happened])
