"""`spyweb health`: show whether the daemon makes progress."""

from __future__ import annotations

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.errors import ExitCode
from spyweb.settings.units import format_duration
from spyweb.subjects.health.views import ChoreHealth, ClusterVitals, Health, HeartbeatHealth
from spyweb.words import counted


def health(context: typer.Context, form: Output = Format.TABLE) -> ExitCode:
    """Show whether the daemon makes progress.

    With its measurements.  Exit code 1 when the scheduler or the store makes no progress.
    """
    project = project_of(context)
    found = project.need_daemon().ask("GET", "/api/health", Health)
    if form is Format.JSON:
        output.show_json(found)
    else:
        _show(found, project.clock.now_ms())
    return ExitCode.FAILED if found.problems else ExitCode.OK


def _show(health: Health, now_ms: int) -> None:
    store, loop, vms = health.store, health.loop, sum(worker.vms for worker in health.workers)
    times = "1 stall" if loop.stalls == 1 else f"{loop.stalls} stalls"
    stalls = f"{times}, at most {format_duration(loop.worst_ms)}; the last: {loop.last}"
    output.show_verdict(health.status, "; ".join(health.problems))
    output.show_fields(
        [
            *[("warning", warning) for warning in health.warnings],
            ("daemon", f"spyweb {health.version}, pid {health.pid}, up {format_duration(int(health.uptime_s) * 1000)}"),
            ("server", health.server_url or "off"),
            ("dashboard", health.dashboard_url or "off"),
            ("scheduler", f"{format_duration(health.scheduler_lag_ms)} behind"),
            ("jobs", ", ".join(f"{count} {state}" for state, count in health.jobs.items() if count) or "none"),
            ("store", f"{store.size_bytes:,} bytes, {store.pending} writes pending, {store.errors} errors"),
            ("workers", f"{len(health.workers)} with {vms} VMs; {health.worker_deaths} have died since the start"),
            ("quarantined", "; ".join(f"{job}: {why}" for job, why in health.quarantined.items()) or "none"),
            *[("held back", f"{job}: {why}") for job, why in health.held_back.items()],
            ("event loop", stalls if loop.stalls else "no stalls"),
            *([("cluster", _cluster(health.cluster, now_ms))] if health.cluster else []),
            *([("heartbeat", _heartbeat(health.heartbeat, now_ms))] if health.heartbeat else []),
            ("sandbox", ", ".join(health.rights) or "none"),
            *[("chore", _chore(chore, now_ms)) for chore in health.chores],
        ]
    )


def _chore(chore: ChoreHealth, now_ms: int) -> str:
    facts = [f"{chore.name}: every {format_duration(round(chore.every_s * 1000))}"]
    if chore.last_at_ms is not None:
        facts.append(f"the last {_span(now_ms - chore.last_at_ms)} ago took {chore.last_took_ms} ms")
    if chore.next_at_ms is not None:
        facts.append(f"next in {_span(chore.next_at_ms - now_ms)}")
    if chore.error:
        facts.append(f"failed: {chore.error}")
    return "; ".join(facts)


def _cluster(cluster: ClusterVitals, now_ms: int) -> str:
    beat = _span(now_ms - cluster.answered_ms)
    free = f", {cluster.unowned} are free" if cluster.unowned else ""
    return f"{counted(cluster.nodes, 'node')}, {cluster.owned} slots are here{free}; the last beat {beat} ago"


def _heartbeat(heartbeat: HeartbeatHealth, now_ms: int) -> str:
    facts = [f"every {format_duration(round(heartbeat.every_s * 1000))}"]
    if heartbeat.last_at_ms is not None:
        said = f'reporting a problem: "{heartbeat.problem}"' if heartbeat.problem else "reporting no problem"
        facts.append(f"the last {_span(now_ms - heartbeat.last_at_ms)} ago, {said}")
    if heartbeat.error:
        facts.append(f"it has not arrived: {heartbeat.error}")
    return "; ".join(facts)


def _span(ms: int) -> str:
    return format_duration(max(0, ms) // 1000 * 1000)
