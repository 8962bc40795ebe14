"""From an address to a reply: before_fetch, override_fetch or the HTTP client, after_fetch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spyweb.cooperative import at_once
from spyweb.errors import FetchError
from spyweb.lua import answer
from spyweb.monitor.context import CycleContext, CycleFailed, Skipped
from spyweb.monitor.hooks import NOTHING, Failed
from spyweb.monitor.rules.exchange import (
    FetchRequest,
    FetchResponse,
    FetchResult,
    failed,
    fetch_of,
    first_request,
    read_own_fetch,
    read_request,
    read_result,
    replied,
    reply_of,
    request_to_lua,
    result_to_lua,
)

SAME_AS_ARGUMENT = b""  # what `ctx` learns is the hook's argument itself, so that a large body is there once


async def prepare(context: CycleContext) -> FetchRequest:
    ask = first_request(context.monitor, context.url, context.services.http.settings)
    said = await context.ask("before_fetch", partial(request_to_lua, ask), at_once(partial(read_request, before=ask)))
    if said is NOTHING:
        raise Skipped
    return _with_proxy(context, said if isinstance(said, FetchRequest) else ask)


def _with_proxy(context: CycleContext, ask: FetchRequest) -> FetchRequest:
    if ask.proxy is not None:
        return ask
    proxy = context.proxies.next_for(context.worker)
    return ask if proxy is None else replace(ask, proxy=proxy.encode())


async def fetch(context: CycleContext, ask: FetchRequest) -> FetchResult:
    said = await context.ask("override_fetch", partial(request_to_lua, ask), at_once(partial(read_own_fetch, ask=ask)))
    match said:
        case FetchResult():
            return said
        case Failed():
            return failed(ask, f"override_fetch: {said.error}", "unknown")
        case _ if said is NOTHING:
            raise CycleFailed("override_fetch must return a response table, or a table with an error in it")
        case _:
            return await _fetch_over_network(context, ask)


async def _fetch_over_network(context: CycleContext, ask: FetchRequest) -> FetchResult:
    most = context.spec.memory_limit if context.hooks.exist else None  # more could not be handed to a hook
    try:
        with context.telemetry.timed("fetch"):
            response = await context.services.http.fetch(fetch_of(ask, context.services.http.settings, most))
    except FetchError as error:
        return failed(ask, str(error), error.kind)
    fetched = replied(ask, reply_of(response, ask))
    if fetched.trouble:
        context.telemetry.blame("fetch", fetched.trouble.message)
    return fetched


async def inspect(context: CycleContext, fetched: FetchResult) -> FetchResponse:
    """What goes on to extraction, an error page too unless after_fetch says no."""
    context.http_status = fetched.reply.status if fetched.reply else None
    if not context.hooks.has("after_fetch"):
        _remember(context, fetched)
        return _reply_or_fail(fetched)
    context.learn_packed("last_fetch", SAME_AS_ARGUMENT)
    read = at_once(partial(read_result, fetched=fetched))
    said = await context.ask("after_fetch", partial(result_to_lua, fetched), read)
    if said is NOTHING:
        raise Skipped
    return _reply_or_fail(said if isinstance(said, FetchResult) else fetched)


def _remember(context: CycleContext, fetched: FetchResult) -> None:
    """For the next hook, where there may be one."""
    if context.hooks.exist:
        context.learn_packed("last_fetch", answer.pack([result_to_lua(fetched)]))


def _reply_or_fail(fetched: FetchResult) -> FetchResponse:
    if fetched.reply is None:
        raise CycleFailed(fetched.trouble.message if fetched.trouble else "there is no response")
    return fetched.reply
