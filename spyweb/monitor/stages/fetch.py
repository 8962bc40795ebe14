"""From an address to a reply: before_fetch, override_fetch or the HTTP client, after_fetch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spyweb.errors import FetchError
from spyweb.lua import answer
from spyweb.monitor.course import Course, CycleFailed, Skipped
from spyweb.monitor.hooks import NOTHING, Failed
from spyweb.monitor.rules.exchange import (
    Ask,
    Fetched,
    Reply,
    ask_to_lua,
    failed,
    fetch_of,
    fetched_to_lua,
    first_ask,
    read_ask,
    read_fetched,
    read_own_fetch,
    replied,
    reply_of,
)
from spyweb.monitor.slices import at_once

SAME_AS_ARGUMENT = b""  # what `ctx` learns is the hook's argument itself, so that a large body is there once


async def prepare(course: Course) -> Ask:
    ask = first_ask(course.monitor, course.url, course.means.http.settings)
    said = await course.ask("before_fetch", partial(ask_to_lua, ask), at_once(partial(read_ask, before=ask)))
    if said is NOTHING:
        raise Skipped
    return _with_proxy(course, said if isinstance(said, Ask) else ask)


def _with_proxy(course: Course, ask: Ask) -> Ask:
    if ask.proxy is not None:
        return ask
    proxy = course.proxies.next_for(course.worker)
    return ask if proxy is None else replace(ask, proxy=proxy.encode())


async def fetch(course: Course, ask: Ask) -> Fetched:
    said = await course.ask("override_fetch", partial(ask_to_lua, ask), at_once(partial(read_own_fetch, ask=ask)))
    match said:
        case Fetched():
            return said
        case Failed():
            return failed(ask, f"override_fetch: {said.error}", "unknown")
        case _ if said is NOTHING:
            raise CycleFailed("override_fetch must return a response table, or a table with an error in it")
        case _:
            return await _fetch_over_network(course, ask)


async def _fetch_over_network(course: Course, ask: Ask) -> Fetched:
    most = course.spec.memory_limit if course.hooks.exist else None  # more could not be handed to a hook
    try:
        with course.telemetry.timed("fetch"):
            response = await course.means.http.fetch(fetch_of(ask, course.means.http.settings, most))
    except FetchError as error:
        return failed(ask, str(error), error.kind)
    fetched = replied(ask, reply_of(response, ask))
    if fetched.trouble:
        course.telemetry.blame("fetch", fetched.trouble.message)
    return fetched


async def inspect(course: Course, fetched: Fetched) -> Reply:
    """What goes on to extraction, an error page too unless after_fetch says no."""
    course.http_status = fetched.reply.status if fetched.reply else None
    if not course.hooks.has("after_fetch"):
        _remember(course, fetched)
        return _reply_or_fail(fetched)
    course.learn_packed("last_fetch", SAME_AS_ARGUMENT)
    read = at_once(partial(read_fetched, fetched=fetched))
    said = await course.ask("after_fetch", partial(fetched_to_lua, fetched), read)
    if said is NOTHING:
        raise Skipped
    return _reply_or_fail(said if isinstance(said, Fetched) else fetched)


def _remember(course: Course, fetched: Fetched) -> None:
    """For the next hook, where there may be one."""
    if course.hooks.exist:
        course.learn_packed("last_fetch", answer.pack([fetched_to_lua(fetched)]))


def _reply_or_fail(fetched: Fetched) -> Reply:
    if fetched.reply is None:
        raise CycleFailed(fetched.trouble.message if fetched.trouble else "there is no response")
    return fetched.reply
