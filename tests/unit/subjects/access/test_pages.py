"""The page of keys and of what was done."""

from __future__ import annotations

import html
import re

from spyweb.store.model.access import Scope
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.dashboard import (
    MARKUP,
    POST,
    dashboard,
    get_page,
    make_dashboard_service,
    page_of,
    post_form,
    signed_in,
)
from tests.fakes.keys import COOKIE


async def anna(service: FakeDaemonService) -> tuple[dict[str, str], str]:
    """Sign in with an admin's key; return the headers of that browser, and the key."""
    made = await service.access.add("anna", [Scope.ADMIN])
    given = service.access.admit_token(made.token)
    assert given
    return {**POST, "Cookie": f"{COOKIE}={service.access.sign_in(given)}"}, made.token


async def test_a_new_key_is_shown_once() -> None:
    service = make_dashboard_service()
    admin, key = await anna(service)
    data = {"name": "grafana", "scope": "read", "jobs": "pri* backup", "key": key}
    async with dashboard(service) as client, client.post("/keys", data=data, headers=admin) as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
        page = await answer.text()
    token = re.search(r'<code id="token" class="secret">([^<]+)</code>', page)
    assert token
    given = service.access.admit_token(token[1])
    assert given
    assert (given.name, given.rights, given.jobs) == ("grafana", frozenset({Scope.READ}), ("pri*", "backup"))
    headers = {"X-SpyWeb-Key": (await service.access.add("root", [Scope.ADMIN])).token}
    page = await page_of("/keys", service, headers)
    assert token[1] not in page
    assert "<bdi>grafana</bdi>" in page
    assert "<code>pri*</code>, <code>backup</code>" in page


async def test_a_session_makes_no_key_unless_its_own_is_shown_again() -> None:
    service = make_dashboard_service()
    admin, _ = await anna(service)
    other = (await service.access.add("other", [Scope.ADMIN])).token
    async with dashboard(service) as client:
        assert 'name="key"' in (await get_page(client, "/keys", **admin))[1]
        for key in ("", "guess", other):
            data = {"name": "more", "scope": "admin", "key": key}
            async with client.post("/keys", data=data, headers=admin) as answer:
                assert answer.status == 422
                assert re.search(r'name="key"[^>]* aria-invalid="true"', await answer.text())
        async with client.post("/api/keys", json={"name": "more", "scopes": ["admin"]}, headers=admin) as answer:
            assert answer.status == 403
        body = {"name": "more", "scopes": ["admin"]}
        async with client.post("/api/keys", json=body, headers={"X-SpyWeb-Key": other}) as answer:
            assert answer.status == 200
    keys = service.access.all_keys()
    assert [key.name for key in keys] == ["anna", "more", "other"]


async def test_no_program_of_this_machine_makes_the_first_key() -> None:
    service = make_dashboard_service()
    body = {"name": "mine", "scopes": ["admin"]}
    async with dashboard(service) as client:
        for address, sent in (("/keys", {"data": {"name": "mine", "scope": "admin"}}), ("/api/keys", {"json": body})):
            async with client.post(address, headers=POST, **sent) as answer:
                assert answer.status == 403
                assert "spyweb keys add NAME --scope admin" in html.unescape(await answer.text())
    assert service.access.all_keys() == []


async def test_what_can_not_be_a_key_is_said_beside_its_field() -> None:
    service = make_dashboard_service()
    admin = await signed_in(service, Scope.ADMIN)
    for data, field in (
        ({"name": MARKUP, "scope": "read"}, "name"),
        ({"name": "a", "scope": "everything"}, "scope"),
        ({"name": "a", "scope": "read", "jobs": "x" * 2000}, "jobs"),
    ):
        status, _, page = await post_form(service, "/keys", admin, **data)
        assert status == 422
        assert re.search(rf'name="{field}"[^>]* aria-invalid="true"', page)
    assert len(service.access.all_keys()) == 1


async def test_a_name_that_is_taken_is_refused_in_words() -> None:
    service = make_dashboard_service()
    admin, key = await anna(service)
    status, _, page = await post_form(service, "/keys", admin, name="anna", scope="read", key=key)
    assert (status, "there is a key anna already" in page) == (422, True)


async def test_a_key_is_revoked_after_a_question() -> None:
    service = make_dashboard_service()
    await service.access.add("old", [Scope.READ])
    headers = {**POST, "X-SpyWeb-Key": (await service.access.add("root", [Scope.ADMIN])).token}
    assert "Revoke the key old?</h1>" in (await post_form(service, "/keys/old/revoke", headers))[2]
    assert len(service.access.all_keys()) == 2
    assert (await post_form(service, "/keys/old/revoke", headers, sure="yes"))[:2] == (303, "/keys")
    assert (await post_form(service, "/keys/old/revoke", headers, sure="yes"))[0] == 404
    keys = service.access.all_keys()
    assert [key.name for key in keys] == ["root"]
