"""Shows a person what came of a cycle: the page and its items, as files in the job's folder and as the result of
`spyweb debug`.
"""

from __future__ import annotations

import asyncio

import structlog

from spyweb.monitor.context import CycleContext, CycleFailed
from spyweb.monitor.expectations import expects
from spyweb.monitor.rules.texts import fields_json
from spyweb.ops.jail import FilePlace, Forbidden, reason_of

log = structlog.get_logger()


async def save_files(context: CycleContext) -> list[str]:
    """Write ID-response.html and ID-fields.json, where there was a response; return their paths in the project."""
    if context.response is None:
        return []
    job, folder = context.spec.id, context.spec.folder
    contents = {
        f"{job}-response.html": context.response.body,
        f"{job}-fields.json": fields_json(context.found or ()),
    }
    try:
        for name, data in contents.items():
            await asyncio.to_thread(context.services.files.overwrite, FilePlace(folder, (name,)), data)
    except (Forbidden, OSError) as error:
        log.warning("debug files not written", job=job, reason=reason_of(error))
        return []
    return [f"{folder}/{name}" for name in contents]


def result_of(context: CycleContext, failure: CycleFailed | None, files: list[str]) -> dict[str, object]:
    """Return what `spyweb debug` shows: plain JSON."""
    return {
        "url": context.page_url,
        "http_status": context.http_status,
        "trouble": _trouble(context, failure),
        "stages": [stage.shown() for stage in context.telemetry.stages()],
        "total_duration_ms": context.telemetry.total_ms,
        "extracted": None if context.found is None else len(context.found),
        "items": [{"fields": dict(item.fields), "matches": list(item.matches)} for item in context.items],
        "files": files,
    }


def _trouble(context: CycleContext, failure: CycleFailed | None) -> str:
    """Say why the page, or the one that was asked for, is missing; return an empty text where it is there."""
    if context.http_status is None:
        return str(failure or "")
    return "" if expects(context.monitor, context.http_status) else f"http status: {context.http_status}"
