"""What a person is shown of a cycle: the page and what was extracted from it, as files in the job's folder and as the
result of `spyweb debug`.
"""

from __future__ import annotations

import asyncio

import structlog

from spyweb.monitor.course import Course, CycleFailed
from spyweb.monitor.expectations import expects
from spyweb.monitor.rules.texts import fields_json
from spyweb.ops.jail import FilePlace, Forbidden, reason_of

log = structlog.get_logger()


async def save_files(course: Course) -> list[str]:
    """ID-response.html and ID-fields.json, where there was a response; gives their paths, relative to the project."""
    if course.reply is None:
        return []
    job, folder = course.spec.id, course.spec.folder
    contents = {
        f"{job}-response.html": course.reply.body,
        f"{job}-fields.json": fields_json(course.found or ()),
    }
    try:
        for name, data in contents.items():
            await asyncio.to_thread(course.means.files.overwrite, FilePlace(folder, (name,)), data)
    except (Forbidden, OSError) as error:
        log.warning("debug files not written", job=job, reason=reason_of(error))
        return []
    return [f"{folder}/{name}" for name in contents]


def result_of(course: Course, failure: CycleFailed | None, files: list[str]) -> dict[str, object]:
    """Return what `spyweb debug` shows: plain JSON."""
    return {
        "url": course.page_url,
        "http_status": course.http_status,
        "trouble": _trouble(course, failure),
        "stages": [stage.shown() for stage in course.telemetry.stages()],
        "total_duration_ms": course.telemetry.total_ms,
        "extracted": None if course.found is None else len(course.found),
        "items": [{"fields": dict(item.fields), "matches": list(item.matches)} for item in course.items],
        "files": files,
    }


def _trouble(course: Course, failure: CycleFailed | None) -> str:
    """Why the page is not there, or not the one that was asked for; an empty text where it is."""
    if course.http_status is None:
        return str(failure or "")
    return "" if expects(course.monitor, course.http_status) else f"http status: {course.http_status}"
