"""Run one cycle of a monitor job: the stages in order.

Each stage is a function; what a hook may do there is that stage's rule.  keep.py stores and announces what is new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec
import structlog
from msgspec.structs import replace

from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import ExtractionError, FetchError
from spyweb.extraction.extractor import Page
from spyweb.files import Forbidden
from spyweb.lua.channel import pack
from spyweb.monitor.context import CycleContext, CycleFailed, Skipped, in_one_step
from spyweb.monitor.exchange import (
    FetchResult,
    failed,
    first_request,
    read_own_fetch,
    read_request,
    read_result,
    replied,
    request_to_lua,
    result_to_lua,
)
from spyweb.monitor.expectations import expects
from spyweb.monitor.items import Item, sequence
from spyweb.monitor.keep import UnannouncedRecords, announce, keep
from spyweb.ops.arguments import Mismatch
from spyweb.ops.files.names import FilePlace, reason_of
from spyweb.ops.http import response_to_lua
from spyweb.ops.network.request import FetchRequest, Response, fetch_of
from spyweb.tracing.span import part

log = structlog.get_logger()

SAME_AS_ARGUMENT = b""  # what `ctx` learns is the hook's argument itself, so that a large body is there once
FAILED_FOR_IT = True  # filter_item's verdict on an item that it failed for


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
    if failure is None:
        await context.call("on_success")
    else:
        await context.call("on_error", str(failure))
    await context.call("on_finally")
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


# From an address to a response


async def prepare(context: CycleContext) -> FetchRequest:
    request = first_request(context.version.monitor, context.url, context.services.http.settings)
    returned = await context.ask(
        "before_fetch", partial(request_to_lua, request), in_one_step(partial(read_request, before=request))
    )
    if returned.is_nothing:
        raise Skipped
    request = returned.value or request
    if request.proxy is None:
        proxy = context.version.proxies.next_for(context.worker)
        request = request if proxy is None else replace(request, proxy=proxy.encode())
    return request


async def fetch(context: CycleContext, request: FetchRequest) -> FetchResult:
    returned = await context.ask(
        "override_fetch", partial(request_to_lua, request), in_one_step(partial(read_own_fetch, request=request))
    )
    if returned.is_absent:
        return await _fetch_over_network(context, request)
    if returned.error is not None:
        return failed(request, f"override_fetch: {returned.error}", "unknown")
    if returned.value is None:
        raise CycleFailed("override_fetch must return a response table, or a table with an error in it")
    return returned.value


async def _fetch_over_network(context: CycleContext, request: FetchRequest) -> FetchResult:
    most = context.version.spec.memory_limit if context.hooks else None  # more could not be handed to a hook
    gate, http = context.host.call.gate("fetch"), context.services.http
    try:
        with context.telemetry.timed("fetch"):
            wanted = fetch_of(request, http.settings, most, gate)
            async with context.services.slots.slot(wanted.url.raw_host or ""):
                response = await http.fetch(wanted)
    except FetchError as error:
        return failed(request, str(error), error.kind)
    fetched = replied(request, replace(response, proxy=request.proxy or None))
    if fetched.error is not None:
        context.telemetry.blame("fetch", fetched.error)
    return fetched


async def inspect(context: CycleContext, fetched: FetchResult) -> Response:
    """Return the response to extract, which may be an error page, unless after_fetch ends the cycle."""
    context.http_status = fetched.response.status if fetched.response else None
    if not context.has_hook("after_fetch"):
        if context.hooks:
            context.learned["last_fetch"] = pack([result_to_lua(fetched)])  # for the next hook
        return _response_or_fail(fetched)
    context.learned["last_fetch"] = SAME_AS_ARGUMENT
    read = in_one_step(partial(read_result, fetched=fetched))
    returned = await context.ask("after_fetch", partial(result_to_lua, fetched), read)
    if returned.is_nothing:
        raise Skipped
    return _response_or_fail(returned.value or fetched)


def _response_or_fail(fetched: FetchResult) -> Response:
    if fetched.response is None:
        raise CycleFailed("there is no response" if fetched.error is None else fetched.error)
    return fetched.response


# From a response to the items worth keeping


async def extract(context: CycleContext, response: Response) -> list[Item]:
    context.response, context.http_status = response, response.status
    returned = await context.ask(
        "override_extract", partial(response_to_lua, response), context.version.reader.read_all
    )
    items = await _extract_by_selectors(context, response) if returned.is_absent else returned.value or []
    await context.search(items)
    context.found = items
    context.learned["selector_matches"] = pack([len(items)])
    return items


async def _extract_by_selectors(context: CycleContext, response: Response) -> list[Item]:
    content_type = response.headers.get(b"content-type")
    page = Page(
        job=context.version.spec.id,
        body=response.body,
        content_type=None if content_type is None else content_type.decode("latin-1"),
        url=response.url.decode("utf-8", "replace"),
        selector=context.version.monitor.selector,
        fields=context.version.monitor.fields,
    )
    try:
        with context.telemetry.timed("extract"):
            extracted = await context.services.extractor.extract(page)
    except ExtractionError as error:
        raise CycleFailed(str(error)) from error
    return [Item(fields) for fields in extracted]


async def rework(context: CycleContext, items: list[Item]) -> list[Item]:
    read = partial(context.version.reader.read_all, given=items)
    returned = await context.ask_about_items("after_extract", items, read)
    if returned.value is None:
        return [] if returned.is_nothing else items
    await context.search(returned.value)
    return returned.value


async def sift(context: CycleContext, items: list[Item]) -> list[Item]:
    """Filter the items by filter_item; by the keywords where it is absent, or failed for an item."""
    if not context.has_hook("filter_item"):
        with context.telemetry.timed("filter"):
            return [item for item in items if context.version.reader.keywords.keeps(item)]
    returned = await context.ask_about_items("filter_item", items, in_one_step(sequence))
    verdicts = returned.value or []
    if len(verdicts) != len(items):
        verdicts = [FAILED_FOR_IT] * len(items)
    kept = await run_in_slices(context.services.clock, _all_kept(context, items, verdicts, returned.where))
    await context.search(kept)
    return kept


def _all_kept(
    context: CycleContext, items: Sequence[Item], verdicts: Sequence[object], where: str
) -> Steps[list[Item]]:
    kept = []
    for item, verdict in zip(items, verdicts, strict=True):
        yield
        if judged := _kept(context, item, verdict, where):
            kept.append(judged)
    return kept


def _kept(context: CycleContext, item: Item, verdict: object, where: str) -> Item | None:
    if verdict is False or verdict is None:
        return None
    if verdict is not FAILED_FOR_IT:
        try:
            return context.version.reader.read(verdict, item)
        except Mismatch as mismatch:
            context.fail("filter_item", f"{mismatch}{where}")
    return item if context.version.reader.keywords.keeps(item) else None


async def choose(context: CycleContext, items: list[Item]) -> Sequence[Item]:
    context.items = items
    if not items:
        return items
    read = partial(context.version.reader.read_all, given=items)
    returned = await context.ask_about_items("before_store", items, read)
    if returned.is_nothing:
        context.items = []
        raise Skipped
    if returned.value is not None:
        await context.search(returned.value)
        context.items = returned.value
    return context.items


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
    trouble = ""  # why the page, or the one that was asked for, is missing
    if context.http_status is None:
        trouble = str(failure or "")
    elif not expects(context.version.monitor, context.http_status):
        trouble = f"http status: {context.http_status}"
    return {
        "url": context.page_url,
        "http_status": context.http_status,
        "trouble": trouble,
        "stages": [stage.shown() for stage in context.telemetry.stages()],
        "total_duration_ms": context.telemetry.total_ms,
        "extracted": None if context.found is None else len(context.found),
        "items": [{"fields": dict(item.fields), "matches": list(item.matches)} for item in context.items],
        "files": files,
    }
