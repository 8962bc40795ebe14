"""The decorator of routes."""

from __future__ import annotations

from aiohttp import web

from spyweb.web.api.route import TABLE, Right, route


async def show_it(request: web.Request) -> web.Response:
    """Show it."""
    return web.Response()


def test_a_handler_is_put_into_the_table_as_it_is() -> None:
    before = list(TABLE)
    try:
        assert route("GET", "/api/jobs/{job}/it", right=Right.READ, answer=int)(show_it) is show_it
        (added,) = (each for each in TABLE if each not in before)
    finally:
        TABLE[:] = before
    assert (added.name, added.subject, added.doc, added.of_job) == ("show_it", "test_route", "Show it.", True)
