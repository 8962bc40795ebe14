"""The table of routes."""

from __future__ import annotations

import pkgutil

from aiohttp import web

import spyweb.subjects
from spyweb.daemon.subjects import MODULES, ROUTES
from spyweb.web.api.route import PUBLIC, TABLE, Right, Route


def test_every_route_that_a_module_declares_is_in_the_table() -> None:
    for module in pkgutil.walk_packages(spyweb.subjects.__path__, "spyweb.subjects."):
        __import__(module.name)
    declared = [each for each in TABLE if each.handler.__module__.startswith("spyweb.")]
    assert sorted(each.name for each in declared) == sorted(each.name for each in ROUTES)
    assert len(set(MODULES)) == len(MODULES)


def test_an_address_with_its_method_is_there_once_and_so_is_each_name() -> None:
    assert len({(each.method, each.path) for each in ROUTES}) == len(ROUTES)
    assert len({each.name for each in ROUTES}) == len(ROUTES)


def test_what_changes_something_needs_more_than_the_right_to_read() -> None:
    changing = [each for each in ROUTES if each.method != "GET"]
    assert [each.path for each in changing if each.right in (PUBLIC, Right.READ)] == []


def test_only_the_probes_are_for_everybody() -> None:
    assert {each.path for each in ROUTES if each.right is PUBLIC} == {"/healthz", "/readyz"}


def test_a_decorated_handler_is_put_into_the_table_as_it_is() -> None:
    async def show_it(request: web.Request) -> web.Response:
        """Show it."""
        return web.Response()

    before = list(TABLE)
    try:
        assert Route("GET", "/api/jobs/{job}/it", right=Right.READ)(show_it) is show_it
        (added,) = (each for each in TABLE if each not in before)
    finally:
        TABLE[:] = before
    assert (added.name, added.subject, added.doc, added.of_job) == ("show_it", "test_subjects", "Show it.", True)
