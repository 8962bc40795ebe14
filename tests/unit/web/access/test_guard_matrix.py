"""Every route of the table, asked with every kind of key: what is answered follows from the right that it names.

A new route is covered by being in the table.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import fields

from spyweb.daemon.subjects import ROUTES
from spyweb.web.access.principal import Right, rights_of
from spyweb.web.access.recognise import HARMLESS, LONGEST_S
from spyweb.web.api.route import Route
from tests.fakes.daemon_service import BACKUP, PRICES, unsent_message
from tests.fakes.keys import Doors

SCOPES = ("read", "run", "state", "admin")
REFUSED = {401, 403, 429}
IN_PATH = {
    "job": "prices",
    "run": "1",
    "incident": "1",
    "channel": "ops",
    "name": "nobody",
    "says": "fail",
    "window": "1",
    "change": "drain",
}
OF_ONE = {"job", "job_id", "namespace", "old"}  # parameters that say what is asked about
QUERY = "?namespace=job:prices&key=k&job=prices&job_id=prices&name=n&old=job:prices&new=job:prices&version=1"


def path_of(route: Route, **names: str) -> str:
    path = re.sub(r"\{(\w+)(?::[^}]*)?\}", lambda found: {**IN_PATH, **names}[found[1]], route.path)
    return path if "{" not in path else path.split("{")[0]


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def expected(route: Route, scope: str | None) -> set[int] | None:
    """Return the statuses that are right; None: any but those of a refusal."""
    if route.right is None:
        return None
    if scope is None:
        return {401}
    return None if route.right in rights_of(Right(scope)) else {403}


def is_right(status: int, wanted: set[int] | None) -> bool:
    return status in wanted if wanted else status not in REFUSED


async def test_a_key_may_what_its_scope_permits_and_nothing_else(doors: Doors) -> None:
    for route in ROUTES:
        for scope in SCOPES:
            status, text = await doors.ask(route.method, path_of(route), scope)
            wanted = expected(route, scope)
            assert is_right(status, wanted), (name_of(route), scope, status, text)
            if wanted == {403}:
                assert f"{scope} lacks the right {route.right}" in text
        assert is_right(await doors.status(route.method, path_of(route), "owner"), None), name_of(route)


async def test_without_a_key_or_with_one_that_is_none_nothing_is_answered(doors: Doors) -> None:
    for route in ROUTES:
        told = len(doors.service.story)
        for who in (None, "", "guess", "revoked"):
            doors.service.clock.advance(LONGEST_S)  # type: ignore[attr-defined]  # a fake one
            status = await doors.status(route.method, path_of(route), who)
            assert is_right(status, expected(route, None)), (name_of(route), who, status)
        assert len(doors.service.story) == told or route.right is None, name_of(route)


async def test_a_session_changes_nothing_for_a_page_of_another_site(doors: Doors) -> None:
    browser = doors.signed_in("admin")
    for route in ROUTES:
        foreign = await doors.status(route.method, path_of(route), **browser, **{"Sec-Fetch-Site": "cross-site"})
        own = await doors.status(route.method, path_of(route), **browser, **{"Sec-Fetch-Site": "same-origin"})
        changes = route.asks_itself or (route.method not in HARMLESS and route.right is not None)
        is_never = route.name == "add_key"  # the page of keys makes one for a session
        assert [foreign in REFUSED, own in REFUSED] == [changes, is_never], name_of(route)


async def test_a_key_of_some_jobs_may_nothing_of_others(doors: Doors) -> None:
    for route in [each for each in ROUTES if each.right is not None]:
        own = await doors.status(route.method, path_of(route) + QUERY, "limited")
        others = await doors.status(route.method, path_of(route) + QUERY, "other")
        assert (own == 403) is not route.of_job, name_of(route)
        assert others == 403 or is_about_all(route), name_of(route)


def is_about_all(route: Route) -> bool:
    """Tell whether a route answers whoever asks, with what that may see."""
    named = {each.name for each in fields(route.query)} if route.query else set()
    return route.of_job and "{" not in route.path and not named & OF_ONE


async def test_there_are_routes_of_each_kind() -> None:
    assert {each.right for each in ROUTES} == {None, *Right}
    assert sum(each.of_job for each in ROUTES) > 15
    assert [each.path for each in ROUTES if is_about_all(each)] == [
        "/api/jobs", "/api/overview", "/api/uptime", "/api/next/day", "/api/maintenance", "/api/me",
        "/api/openapi.json",
    ]  # fmt: skip


async def ask_json(doors: Doors, path: str, who: str) -> Any:
    async with doors.client.get(path, headers={"X-SpyWeb-Key": doors.tokens[who]}) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_lists_show_a_key_its_own_jobs_alone(doors: Doors) -> None:
    doors.service.unsent = [unsent_message(2, BACKUP), unsent_message(1, PRICES)]
    for who, job in (("limited", "prices"), ("other", "backup")):
        jobs = await ask_json(doors, "/api/jobs", who)
        assert [each["id"] for each in jobs] == [job]
        runs = await ask_json(doors, "/api/runs", who)
        assert {each["job"] for each in runs} == {job}
        due = await ask_json(doors, "/api/next", who)
        assert {each["job"] for each in due} <= {job}
        assert await ask_json(doors, "/api/records", who) == {}
        assert await ask_json(doors, "/api/next/day", who)
        gaps, messages = await ask_json(doors, "/api/gaps", who), await ask_json(doors, "/api/outbox", who)
        assert {each["job"] for each in gaps["gaps"]} <= {job}
        assert [each["job_id"] for each in messages] == [job]


@pytest.mark.parametrize(
    "path",
    [
        "/api/state/entries?namespace=job:prices",
        "/api/state/entry?namespace=job:prices&key=k",
        "/api/state/history?namespace=job:prices&key=k",
        "/api/state/export?namespace=job:prices",
        "/api/runs/1/tasks",
    ],
)
async def test_what_a_job_keeps_is_its_own(doors: Doors, path: str) -> None:
    assert await doors.status("GET", path, "limited") == 200
    assert await doors.status("GET", path, "other") == 403
    of_none = path.replace("job:prices", "state").replace("/1/", "/99/")
    assert await doors.status("GET", of_none, "limited") == 403
