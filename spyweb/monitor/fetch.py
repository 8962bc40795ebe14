"""Go from an address to a response: before_fetch, override_fetch or the HTTP client, after_fetch."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from spyweb.errors import FetchError
from spyweb.lua.channel import pack
from spyweb.monitor.context import CycleContext, CycleFailed, Skipped, in_one_step
from spyweb.monitor.exchange import (
    FetchResponse,
    FetchResult,
    failed,
    first_request,
    read_own_fetch,
    read_request,
    read_result,
    replied,
    request_to_lua,
    response_of,
    result_to_lua,
)
from spyweb.ops.network.request import FetchRequest, fetch_of

SAME_AS_ARGUMENT = b""  # what `ctx` learns is the hook's argument itself, so that a large body is there once


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
    gate, http = context.host.gate("fetch"), context.services.http
    try:
        with context.telemetry.timed("fetch"):
            response = await http.fetch(fetch_of(request, http.settings, most, gate))
    except FetchError as error:
        return failed(request, str(error), error.kind)
    fetched = replied(request, response_of(response, request))
    if fetched.failure:
        context.telemetry.blame("fetch", fetched.failure.message)
    return fetched


async def inspect(context: CycleContext, fetched: FetchResult) -> FetchResponse:
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


def _response_or_fail(fetched: FetchResult) -> FetchResponse:
    if fetched.response is None:
        raise CycleFailed(fetched.failure.message if fetched.failure else "there is no response")
    return fetched.response
