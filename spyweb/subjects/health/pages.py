"""The page of the daemon's health: its problems, measurements, limits and sandbox."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from spyweb.settings.sections import Settings
from spyweb.settings.units import SECOND_MS
from spyweb.subjects.health.service import HealthService
from spyweb.subjects.health.views import Health, health_words, is_missing
from spyweb.web.api.query import Natural
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown
from spyweb.web.pages.words import NBSP, show_duration, show_size

FULL = 0.9  # of a disk, from which on its gauge warns


class Tile(Struct, frozen=True, kw_only=True):
    """A figure with its label."""

    figure: str
    words: str
    tone: str = ""
    used: float | None = None  # the used share


def tiles_of(health: Health, disk: tuple[int, int] | None) -> Iterator[Tile]:
    """Yield the figures of the daemon; `disk` has the free and all bytes of the disk on which the store lies."""
    store, loop = health.store, health.loop
    lag = health.scheduler_lag_ms
    yield Tile(figure=show_duration(lag), words="behind the schedule", tone="bad" if lag > 5000 else "")
    yield Tile(figure=f"{store.pending:,}", words="writes pending", tone="bad" if store.stalled_s > 1 else "")
    yield Tile(figure=show_size(store.size_bytes), words=f"database; {store.batches:,} commits since start")
    if disk:
        free, size = disk
        used = 1 - free / size if size else 0.0
        words = f"free of {show_size(size)} on its disk"
        yield Tile(figure=show_size(free), words=words, tone="warn" if used > FULL else "", used=used)
    memory = sum(worker.used_bytes for worker in health.workers)
    yield Tile(figure=show_size(memory), words="memory of scripts")
    held_up = f"event loop stalls, at most {show_duration(loop.worst_ms)}"
    yield Tile(figure=f"{loop.stalls:,}", words=held_up) if loop.stalls else Tile(figure="0", words="event loop stalls")
    if health.storage_errors:
        yield Tile(figure=f"{health.storage_errors:,}", words="store calls of scripts failed", tone="warn")
    if health.worker_deaths:
        yield Tile(figure=f"{health.worker_deaths:,}", words="workers died since start")


def limits_of(settings: Settings) -> dict[str, str]:
    """Return the limits and rules of config.toml that apply to all jobs."""
    server, store, http = settings.server, settings.store, settings.http
    runs, records = settings.runs, settings.records
    where = f"{server.host}:{server.port}" + (" with TLS" if server.tls_cert else "")
    kept_for = "forever" if records.keep_for_ms is None else show_duration(records.keep_for_ms)
    private = "not to private networks" if http.deny_private else "also to private networks"
    return {
        "address": where if server.enabled else "nowhere: the server is off",
        "workers": f"{settings.daemon.workers}",
        "durability": store.durability.value,
        "encryption": "values are encrypted" if store.key_file else "none",
        "values": f"at most {show_size(settings.state.max_value_bytes)} each",
        "runs kept": f"{runs.keep:,} of each job, {show_duration(runs.keep_for_ms)}",
        "records kept": f"{records.keep:,} of each job, {kept_for}",
        "requests": f"{show_duration(http.timeout_ms)}, {show_size(http.max_body_size)}, {private}",
        "commands": f"{settings.exec.at_once} at once",
    }


WORKERS = 50
# The link of a remedy.
PAGES = {"jobs": ("", "The jobs"), "outbox": ("outbox", "The outbox"), "nodes": ("nodes", "The nodes")}


class HealthQuery(Struct, frozen=True):
    """The page of the workers."""

    page: Natural = 1


@DashboardPage("health", "health.html", place="health", parts={"health-now": PagePart("health_now.html", ("health",))})
async def show_health(asked: Asked) -> Shown:
    """Show the problems with their remedies, measurements, limits and sandbox."""
    health = asked.services[HealthService].health()
    disk = await asyncio.to_thread(_disk_of, health.store.path)
    workers = health.workers
    number = min(max(asked.query(HealthQuery).page, 1), max(1, -(-len(workers) // WORKERS)))
    values = {
        "words": health_words(health),
        "health": health,
        "mark": "bad" if health.problems else "warn" if health.warnings else "well",
        "tiles": list(tiles_of(health, disk)),
        "uptime": show_duration(int(health.uptime_s) * SECOND_MS).replace(NBSP, " "),
        "pages": PAGES,
        "name_of": asked.name_of,
        "workers": workers[(number - 1) * WORKERS : number * WORKERS],
        "first_worker": (number - 1) * WORKERS + 1,
        "next_workers": number + 1 if number * WORKERS < len(workers) else 0,
        "is_missing": is_missing,
        "limits": limits_of(asked.services[HealthService].settings()),
    }
    count = len(health.advice)
    title = "Health" if not count else "1 problem" if count == 1 else f"{count} problems"
    return Shown(title=title, values=values)


def _disk_of(path: str) -> tuple[int, int] | None:
    """Return the free and all bytes of the disk of the store; None where there is none, or on an error."""
    try:
        found = shutil.disk_usage(Path(path).parent)
    except OSError:
        return None
    return found.free, found.total
