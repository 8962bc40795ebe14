"""Run one cycle of a monitor job: the stages in order.

Each stage is a function of a module of its own; what a hook may do there is that stage's rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from spyweb.monitor.context import CycleContext, CycleFailed, Skipped
from spyweb.monitor.expectations import expects
from spyweb.monitor.rules.items import Item
from spyweb.monitor.stages.announce import announce
from spyweb.monitor.stages.extract import choose, extract, rework, sift
from spyweb.monitor.stages.fetch import fetch, inspect, prepare
from spyweb.monitor.stages.keep import keep
from spyweb.tracing.span import part


async def run_cycle(context: CycleContext) -> CycleFailed | None:
    """Run all stages, then the hooks of the end; return why the cycle failed, if it did."""
    failure = None
    try:
        items = await find(context)
        async with context.unannounced.at_risk():
            with part(context.trace, "keep"):
                new = await keep(context, items)
            with part(context.trace, "announce"):
                await announce(context, new)
    except Skipped:
        pass
    except CycleFailed as error:
        failure = error
    await finish(context, failure)
    return failure


async def find(context: CycleContext) -> Sequence[Item]:
    """Return the items worth keeping.  Raises Skipped where a hook ends the cycle, and CycleFailed."""
    with part(context.trace, "fetch"):
        request = await prepare(context)  # before_fetch
        fetched = await fetch(context, request)  # override_fetch, or the HTTP client
        response = await inspect(context, fetched)  # after_fetch
    with part(context.trace, "extract"):
        items = await extract(context, response)  # override_extract, or the selectors
        items = await rework(context, items)  # after_extract
        items = await sift(context, items)  # filter_item, or the keywords
        return await choose(context, items)  # before_store


async def preview(context: CycleContext) -> CycleFailed | None:
    """Run the stages up to the store, for a person who looks: nothing is stored or sent, no end hook is called."""
    try:
        items = await find(context)
        if not items and not expects(context.monitor, context.http_status):
            raise CycleFailed(f"http status: {context.http_status}")  # a run goes on; a person is told why nothing came
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
