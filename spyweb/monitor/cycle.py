"""Run one cycle of a monitor job: the stages in order.

Each stage is a function of a module of its own; what a hook may do there is that stage's rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from spyweb.files import Forbidden
from spyweb.monitor.context import CycleContext, CycleFailed, Skipped
from spyweb.monitor.expectations import expects
from spyweb.monitor.extract import choose, extract, rework, sift
from spyweb.monitor.fetch import fetch, inspect, prepare
from spyweb.monitor.items import Item
from spyweb.monitor.keep import UnannouncedRecords, announce, keep
from spyweb.ops.files.names import FilePlace, reason_of
from spyweb.tracing.span import part

log = structlog.get_logger()


async def run_cycle(context: CycleContext, unannounced: UnannouncedRecords) -> CycleFailed | None:
    """Run all stages, then the hooks of the end; return why the cycle failed, if it did."""
    failure = None
    try:
        items = await find(context)
        async with unannounced.at_risk() as left:
            with part(context.host.trace, "keep"):
                new = await keep(context, items)
            with part(context.host.trace, "announce"):
                await announce(context, left, new)
    except Skipped:
        pass
    except CycleFailed as error:
        failure = error
    await finish(context, failure)
    return failure


async def find(context: CycleContext) -> Sequence[Item]:
    """Return the items worth keeping.  Raises Skipped where a hook ends the cycle, and CycleFailed."""
    with part(context.host.trace, "fetch"):
        request = await prepare(context)  # before_fetch
        fetched = await fetch(context, request)  # override_fetch, or the HTTP client
        response = await inspect(context, fetched)  # after_fetch
    with part(context.host.trace, "extract"):
        items = await extract(context, response)  # override_extract, or the selectors
        items = await rework(context, items)  # after_extract
        items = await sift(context, items)  # filter_item, or the keywords
        return await choose(context, items)  # before_store


async def preview(context: CycleContext) -> CycleFailed | None:
    """Run the stages up to the store, for `spyweb debug`: nothing is stored or sent, no end hook is called."""
    try:
        items = await find(context)
        if not items and not expects(context.version.monitor, context.http_status):
            raise CycleFailed(f"http status: {context.http_status}")  # a run goes on; a debug run says why nothing came
    except Skipped:
        return None
    except CycleFailed as failure:
        return failure
    return None


async def finish(context: CycleContext, failure: CycleFailed | None) -> None:
    if failure is None:
        await context.call("on_success")
    else:
        await context.call("on_error", str(failure))
    await context.call("on_finally")


# For `spyweb debug`, and jobs with `debug = true`


async def save_files(context: CycleContext) -> list[str]:
    """Write ID-response.html and ID-fields.json, where there was a response; return their paths in the project."""
    if context.response is None:
        return []
    job, folder = context.version.spec.id, context.version.spec.folder
    fields = msgspec.json.encode([item.fields for item in context.found or ()])
    contents = {
        f"{job}-response.html": context.response.body,
        f"{job}-fields.json": msgspec.json.format(fields) + b"\n",
    }
    try:
        for name, data in contents.items():
            place = FilePlace(context.services.files.top, folder, (name,))
            await asyncio.to_thread(context.services.files.overwrite, place, data)
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
    return "" if expects(context.version.monitor, context.http_status) else f"http status: {context.http_status}"
