"""Every page and every action of the dashboard, asked by sessions of every kind of key."""

from __future__ import annotations

import re

from spyweb.store.model.access import Scope
from spyweb.web.access.principal import Right, rights_of
from spyweb.web.app import tcp_app
from spyweb.web.pages.frame import API_DOCS
from spyweb.web.pages.page import ACTIONS, PAGES, Action, DashboardPage
from spyweb.web.pages.render import HERE, SUBJECTS
from tests.fakes.client import Client, client_of
from tests.fakes.dashboard import make_dashboard_service, signed_in
from tests.fakes.incidents import fail

BROWSER = {"Accept": "text/html"}
IN_PATH = {"job": "prices", "run": "1", "name": "nobody", "incident": "1"}
ALL: list[tuple[str, DashboardPage | Action]] = [
    *(("GET", each) for each in PAGES),
    *(("POST", each) for each in ACTIONS if each.path != "sign-in"),  # which has tests of its own
]


def path_of(each: DashboardPage | Action, **names: str) -> str:
    return "/" + re.sub(r"\{(\w+)(?::[^}]*)?\}", lambda found: {**IN_PATH, **names}.get(found[1], "x"), each.path)


async def status_of(client: Client, method: str, path: str, headers: dict[str, str]) -> int:
    async with client.request(method, path, headers=headers, allow_redirects=False) as answer:
        return answer.status


async def test_a_session_may_what_its_key_permits() -> None:
    service = make_dashboard_service()
    sessions = {scope: await signed_in(service, scope, name=scope.value) for scope in Scope}
    async with client_of(tcp_app(service)) as client:
        for method, each in ALL:
            path = path_of(each)
            assert (await status_of(client, method, path, BROWSER) == 401) is (each.right is not None), path
            for scope, headers in sessions.items():
                may = each.right is None or each.right in rights_of(Right(scope.value))
                if method == "POST" and each.right is not None:
                    foreign = {**headers, "Sec-Fetch-Site": "cross-site"}
                    assert await status_of(client, method, path, foreign) == 403, (path, "of another site")
                if each.path != "sign-out":
                    status = await status_of(client, method, path, headers)
                    assert (status in (401, 403)) is not may, (method, path, scope, status)


async def test_a_session_of_some_jobs_sees_nothing_of_others() -> None:
    service = make_dashboard_service()
    await fail(service.stored_incidents, "prices")
    headers = await signed_in(service, *Scope, jobs=("backup",))
    async with client_of(tcp_app(service)) as client:
        protected = [each for each in ALL if each[1].right is not None]
        for method, each in sorted(protected, key=lambda given: given[1].path == "sign-out"):
            path = path_of(each)
            async with client.request(method, path, headers=headers, allow_redirects=False) as answer:
                status, text = answer.status, await answer.text()
            if not each.of_job:
                assert status == 403, path
            elif "{job}" in each.path:
                assert status in (403, 404), path
            assert "prices" not in text.replace(path, "").replace("No job is called prices", ""), path
    assert service.story == []


def test_every_page_has_an_address_of_its_own_and_a_template() -> None:
    assert len({page.path for page in PAGES}) == len(PAGES)
    for page in PAGES:
        assert [*SUBJECTS.glob(f"*/templates/{page.template}"), *HERE.glob(f"templates/{page.template}")], page.template
        assert page.show.__doc__


def test_no_address_but_that_of_its_description_is_below_the_api() -> None:
    for path in [*(page.path for page in PAGES), *(each.path for each in ACTIONS)]:
        assert f"/{path}" == API_DOCS or not path.startswith(("api", "static/", "/"))


def test_whatever_changes_something_needs_more_than_to_look() -> None:
    for each in ACTIONS:
        assert each.right is not Right.READ or each.path == "sign-out"
        assert each.do.__doc__
