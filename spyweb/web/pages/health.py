"""Health: whether somebody can rely on the daemon, and what to do where not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from spyweb.dashboard.health import Disk, gauge_words, limits_of, pieces_of, protections_of, tiles_of, uptime_words
from spyweb.service.health import HealthService
from spyweb.views.health import health_words
from spyweb.web.api.query import Natural
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown

WORKERS = 50
PAGES = {"jobs": "", "outbox": "outbox"}  # where a remedy leads to
PAGE_WORDS = {"jobs": "The jobs", "outbox": "The outbox"}


class HealthQuery(Struct, frozen=True):
    """The page of the workers."""

    page: Natural = 1


async def values_of(asked: Asked) -> Mapping[str, object]:
    """Gather what changes."""
    health = asked.services[HealthService].health()
    disk = await asyncio.to_thread(_disk_of, health.store.path)
    return {
        "words": health_words(health),
        "health": health,
        "mark": "bad" if health.problems else "warn" if health.warnings else "well",
        "tiles": list(tiles_of(health, disk)),
        "uptime": uptime_words(health.uptime_s),
        "pages": PAGES,
        "page_words": PAGE_WORDS,
        "gauge_words": gauge_words,
        "pieces_of": pieces_of,
    }


@DashboardPage("health", "health.html", place="health", parts={"health-now": PagePart("health_now.html", ("health",))})
async def show_health(asked: Asked) -> Shown:
    """Show what is wrong, what to do about it, and what is in force."""
    values = await values_of(asked)
    health = asked.services[HealthService].health()
    workers = health.workers
    number = min(max(asked.query(HealthQuery).page, 1), max(1, -(-len(workers) // WORKERS)))
    more = {
        "workers": workers[(number - 1) * WORKERS : number * WORKERS],
        "first_worker": (number - 1) * WORKERS + 1,
        "next_workers": number + 1 if number * WORKERS < len(workers) else 0,
        "protections": list(protections_of(health)),
        "limits": list(limits_of(asked.services[HealthService].settings())),
    }
    count = len(health.advice)
    title = "Health" if not count else "1 problem" if count == 1 else f"{count} problems"
    return Shown(title=title, values={**values, **more})


def _disk_of(path: str) -> Disk | None:
    """Measure the disk of the store; None where it has none, or it can't be asked."""
    try:
        found = shutil.disk_usage(Path(path).parent)
    except OSError:
        return None
    return Disk(free_bytes=found.free, size_bytes=found.total)
