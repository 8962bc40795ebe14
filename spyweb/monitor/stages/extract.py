"""From a reply to the items worth keeping: override_extract or CSS, after_extract, filter_item or the keywords,
before_store.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spyweb.cooperative import Steps, at_once, finish
from spyweb.errors import ExtractionError
from spyweb.extraction.page import Page
from spyweb.monitor.context import CycleContext, CycleFailed, Skipped
from spyweb.monitor.hooks import NOTHING, Failed
from spyweb.monitor.rules.exchange import FetchResponse, response_to_lua
from spyweb.monitor.rules.items import Item
from spyweb.monitor.rules.reading import sequence
from spyweb.ops.arguments import Mismatch

CONTENT_TYPE = b"content-type"
FAILED_FOR_IT = True  # filter_item's verdict on an item that it failed for


async def extract(context: CycleContext, reply: FetchResponse) -> list[Item]:
    context.reply, context.http_status = reply, reply.status
    said = await context.ask("override_extract", partial(response_to_lua, reply), context.reader.read_all)
    if isinstance(said, list):
        items = said
    elif said is NOTHING or isinstance(said, Failed):
        items = []
    else:
        items = await _extract_by_selectors(context, reply)
    await context.search(items)
    context.found = items
    context.learn("selector_matches", len(items))
    return items


async def _extract_by_selectors(context: CycleContext, reply: FetchResponse) -> list[Item]:
    try:
        with context.telemetry.timed("extract"):
            extracted = await context.services.extractor.extract(_page(context, reply))
    except ExtractionError as error:
        raise CycleFailed(str(error)) from error
    return [Item(fields) for fields in extracted.items]


def _page(context: CycleContext, reply: FetchResponse) -> Page:
    content_type = reply.headers.get(CONTENT_TYPE)
    return Page(
        job=context.spec.id,
        body=reply.body,
        content_type=None if content_type is None else content_type.decode("latin-1"),
        url=reply.url.decode("utf-8", "replace"),
        selector=context.monitor.selector,
        fields=context.monitor.fields,
    )


async def rework(context: CycleContext, items: list[Item]) -> list[Item]:
    read = partial(context.reader.read_all, told=items)
    said = await context.ask_about("after_extract", items, read)
    if said is NOTHING:
        return []
    if not isinstance(said, list):
        return items
    await context.search(said)
    return said


async def sift(context: CycleContext, items: list[Item]) -> list[Item]:
    """filter_item takes the place of the keywords; where it fails, it is as if it were absent for that item."""
    if not context.hooks.has("filter_item"):
        with context.telemetry.timed("filter"):
            return [item for item in items if context.reader.keywords.keeps(item)]
    said = await context.ask_about("filter_item", items, at_once(sequence))
    verdicts = said.value if isinstance(said, Failed) else said
    if not isinstance(verdicts, list) or len(verdicts) != len(items):
        verdicts = [FAILED_FOR_IT] * len(items)
    kept = await finish(context.services.clock, _all_kept(context, items, verdicts))
    await context.search(kept)
    return kept


def _all_kept(context: CycleContext, items: Sequence[Item], verdicts: Sequence[object]) -> Steps[list[Item]]:
    kept = []
    for item, verdict in zip(items, verdicts, strict=True):
        yield
        judged = _kept(context, item, verdict)
        if judged:
            kept.append(judged)
    return kept


def _kept(context: CycleContext, item: Item, verdict: object) -> Item | None:
    if verdict is False or verdict is None:
        return None
    if verdict is not FAILED_FOR_IT:
        try:
            return context.reader.read(verdict, item)
        except Mismatch as mismatch:
            context.blame_value("filter_item", mismatch)
    return item if context.reader.keywords.keeps(item) else None


async def choose(context: CycleContext, items: list[Item]) -> Sequence[Item]:
    context.items = items
    if not items:
        return items
    read = partial(context.reader.read_all, told=items)
    said = await context.ask_about("before_store", items, read)
    if said is NOTHING:
        context.items = []
        raise Skipped
    if isinstance(said, list):
        await context.search(said)
        context.items = said
    return context.items
