"""Goes from a response to the items worth keeping: override_extract or CSS, after_extract, filter_item or the
keywords, before_store.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import ExtractionError
from spyweb.extraction.extractor import Page
from spyweb.lua.channel import pack
from spyweb.monitor.context import CycleContext, CycleFailed, Skipped, in_one_step
from spyweb.monitor.exchange import FetchResponse, response_to_lua
from spyweb.monitor.items import Item, sequence
from spyweb.ops.arguments import Mismatch

CONTENT_TYPE = b"content-type"
FAILED_FOR_IT = True  # filter_item's verdict on an item that it failed for


async def extract(context: CycleContext, response: FetchResponse) -> list[Item]:
    context.response, context.http_status = response, response.status
    returned = await context.ask(
        "override_extract", partial(response_to_lua, response), context.version.reader.read_all
    )
    items = await _extract_by_selectors(context, response) if returned.is_absent else returned.value or []
    await context.search(items)
    context.found = items
    context.learned["selector_matches"] = pack([len(items)])
    return items


async def _extract_by_selectors(context: CycleContext, response: FetchResponse) -> list[Item]:
    try:
        with context.telemetry.timed("extract"):
            extracted = await context.services.extractor.extract(_page(context, response))
    except ExtractionError as error:
        raise CycleFailed(str(error)) from error
    return [Item(fields) for fields in extracted]


def _page(context: CycleContext, response: FetchResponse) -> Page:
    content_type = response.headers.get(CONTENT_TYPE)
    return Page(
        job=context.version.spec.id,
        body=response.body,
        content_type=None if content_type is None else content_type.decode("latin-1"),
        url=response.url.decode("utf-8", "replace"),
        selector=context.version.monitor.selector,
        fields=context.version.monitor.fields,
    )


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
        judged = _kept(context, item, verdict, where)
        if judged:
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
