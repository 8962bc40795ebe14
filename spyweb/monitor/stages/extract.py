"""From a reply to the items worth keeping: override_extract or CSS, after_extract, filter_item or the keywords,
before_store.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spyweb.errors import ExtractionError
from spyweb.extraction.page import Page
from spyweb.monitor.course import Course, CycleFailed, Skipped
from spyweb.monitor.hooks import NOTHING, Failed
from spyweb.monitor.rules.exchange import Reply, reply_to_lua
from spyweb.monitor.rules.items import Item
from spyweb.monitor.rules.reading import sequence
from spyweb.monitor.slices import Steps, at_once, finish
from spyweb.ops.arguments import Mismatch

CONTENT_TYPE = b"content-type"
FAILED_FOR_IT = True  # filter_item's verdict on an item that it failed for


async def extract(course: Course, reply: Reply) -> list[Item]:
    course.reply, course.http_status = reply, reply.status
    said = await course.ask("override_extract", partial(reply_to_lua, reply), course.reader.read_all)
    if isinstance(said, list):
        items = said
    elif said is NOTHING or isinstance(said, Failed):
        items = []
    else:
        items = await _extract_by_selectors(course, reply)
    await course.search(items)
    course.found = items
    course.learn("selector_matches", len(items))
    return items


async def _extract_by_selectors(course: Course, reply: Reply) -> list[Item]:
    try:
        with course.telemetry.timed("extract"):
            extracted = await course.means.extractor.extract(_page(course, reply))
    except ExtractionError as error:
        raise CycleFailed(str(error)) from error
    return [Item(fields) for fields in extracted.items]


def _page(course: Course, reply: Reply) -> Page:
    content_type = reply.headers.get(CONTENT_TYPE)
    return Page(
        job=course.spec.id,
        body=reply.body,
        content_type=None if content_type is None else content_type.decode("latin-1"),
        url=reply.url.decode("utf-8", "replace"),
        selector=course.monitor.selector,
        fields=course.monitor.fields,
    )


async def rework(course: Course, items: list[Item]) -> list[Item]:
    read = partial(course.reader.read_all, told=items)
    said = await course.ask_about("after_extract", items, read)
    if said is NOTHING:
        return []
    if not isinstance(said, list):
        return items
    await course.search(said)
    return said


async def sift(course: Course, items: list[Item]) -> list[Item]:
    """filter_item takes the place of the keywords; where it fails, it is as if it were absent for that item."""
    if not course.hooks.has("filter_item"):
        with course.telemetry.timed("filter"):
            return [item for item in items if course.reader.keywords.keeps(item)]
    said = await course.ask_about("filter_item", items, at_once(sequence))
    verdicts = said.value if isinstance(said, Failed) else said
    if not isinstance(verdicts, list) or len(verdicts) != len(items):
        verdicts = [FAILED_FOR_IT] * len(items)
    kept = await finish(course.means.clock, _all_kept(course, items, verdicts))
    await course.search(kept)
    return kept


def _all_kept(course: Course, items: Sequence[Item], verdicts: Sequence[object]) -> Steps[list[Item]]:
    kept = []
    for item, verdict in zip(items, verdicts, strict=True):
        yield
        judged = _kept(course, item, verdict)
        if judged:
            kept.append(judged)
    return kept


def _kept(course: Course, item: Item, verdict: object) -> Item | None:
    if verdict is False or verdict is None:
        return None
    if verdict is not FAILED_FOR_IT:
        try:
            return course.reader.read(verdict, item)
        except Mismatch as mismatch:
            course.blame_value("filter_item", mismatch)
    return item if course.reader.keywords.keeps(item) else None


async def choose(course: Course, items: list[Item]) -> Sequence[Item]:
    course.items = items
    if not items:
        return items
    read = partial(course.reader.read_all, told=items)
    said = await course.ask_about("before_store", items, read)
    if said is NOTHING:
        course.items = []
        raise Skipped
    if isinstance(said, list):
        await course.search(said)
        course.items = said
    return course.items
