"""One cycle of a monitor job: the stages in order.

Each stage is a function of a module of its own; what a hook may do there is that stage's rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from spyweb.monitor.course import Course, CycleFailed, Skipped
from spyweb.monitor.expectations import expects
from spyweb.monitor.rules.items import Item
from spyweb.monitor.stages.announce import announce
from spyweb.monitor.stages.extract import choose, extract, rework, sift
from spyweb.monitor.stages.fetch import fetch, inspect, prepare
from spyweb.monitor.stages.keep import keep


async def run_cycle(course: Course) -> CycleFailed | None:
    """From an address to what is new, and the hooks of its end.  Gives why it failed, if it did."""
    failure = None
    try:
        items = await find(course)
        async with course.owed.at_risk():
            new = await keep(course, items)
            await announce(course, new)
    except Skipped:
        pass
    except CycleFailed as error:
        failure = error
    await finish(course, failure)
    return failure


async def find(course: Course) -> Sequence[Item]:
    """The items worth keeping.  Raises Skipped where a hook says that there is nothing left to do, CycleFailed."""
    ask = await prepare(course)  # before_fetch
    fetched = await fetch(course, ask)  # override_fetch, or the HTTP client
    reply = await inspect(course, fetched)  # after_fetch
    items = await extract(course, reply)  # override_extract, or the selectors
    items = await rework(course, items)  # after_extract
    items = await sift(course, items)  # filter_item, or the keywords
    return await choose(course, items)  # before_store


async def preview(course: Course) -> CycleFailed | None:
    """The same up to the store, for a person who looks: nothing is stored or sent, and no cycle ends."""
    try:
        items = await find(course)
        if not items and not expects(course.monitor, course.http_status):
            raise CycleFailed(f"http status: {course.http_status}")  # a run goes on; a person is told why nothing came
    except Skipped:
        return None
    except CycleFailed as failure:
        return failure
    return None


async def finish(course: Course, failure: CycleFailed | None) -> None:
    if failure is None:
        await course.call("on_success")
    else:
        await course.call("on_error", str(failure))
    await course.call("on_finally")
