"""Keys and what was done with them: over HTTP, by the commands and on their page."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from spyweb.store.model.access import Scope
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import MARKUP, FakeDaemonService
from tests.fakes.dashboard import POST, dashboard, get_page, make_dashboard_service, page_of, post_form, signed_in
from tests.fakes.keys import COOKIE, Doors


async def send(doors: Doors, method: str, path: str, body: object = None, who: str = "admin") -> tuple[int, Any]:
    headers = {"X-SpyWeb-Key": doors.tokens.get(who, who)}
    async with doors.client.request(method, path, json=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_a_key_is_made_used_and_revoked(doors: Doors) -> None:
    status, made = await send(doors, "POST", "/api/keys", {"name": "ci", "scopes": ["run"], "jobs": ["prices"]})
    assert status == 200
    assert made["key"]["scopes"] == ["run"]
    assert (await send(doors, "GET", "/api/me", who=made["token"]))[1] == {
        "name": "ci", "source": "key", "rights": ["read", "run"], "jobs": ["prices"],
    }  # fmt: skip
    _, keys = await send(doors, "GET", "/api/keys")
    assert "ci" in [key["name"] for key in keys]
    assert made["token"][15:] not in f"{keys}"

    assert await send(doors, "DELETE", "/api/keys/ci") == (200, {"name": "ci", "revoked": True})
    assert (await send(doors, "DELETE", "/api/keys/ci"))[0] == 404
    assert (await send(doors, "GET", "/api/me", who=made["token"]))[0] == 401


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"name": "a b", "scopes": ["read"]}, 422, "name"),
        ({"name": "x", "scopes": []}, 422, "scopes"),
        ({"name": "x", "scopes": ["all"]}, 422, "scopes[0]"),
        ({"name": "x", "scopes": ["read"], "jobs": [""]}, 422, "jobs"),
        ({"scopes": ["read"]}, 422, "name"),
        ({"name": "read", "scopes": ["read"]}, 409, None),
        ([], 422, None),
    ],
)
async def test_what_makes_no_key_is_told(doors: Doors, body: object, status: int, field: str | None) -> None:
    found, answer = await send(doors, "POST", "/api/keys", body)
    assert (found, answer["field"]) == (status, field)


async def test_the_trail_is_listed_page_by_page(doors: Doors) -> None:
    for name in "abc":
        await send(doors, "POST", "/api/keys", {"name": name, "scopes": ["read"]})
    _, lines = await send(doors, "GET", "/api/audit?limit=2")
    assert [(line["action"], line["target"]) for line in lines] == [("POST /api/keys", "c"), ("POST /api/keys", "b")]
    _, rest = await send(doors, "GET", f"/api/audit?before={lines[-1]['id']}")
    assert len(rest) == 1
    assert (await send(doors, "GET", "/api/audit?limit=0"))[0] == 400


Keys = list[dict[str, object]]


def test_a_key_is_made_listed_and_revoked_without_a_daemon(project: Path) -> None:
    made = spyweb("keys", "add", "deploy", "--scope", "state", "--scope", "run", "--job", "deploy-*", root=project)
    assert re.fullmatch(r"spyweb_[0-9A-Za-z]{57}\n", made.out)
    assert "keep it, it is not shown again\nfrom now on a key is needed on this machine too: " in made.err
    listed = spyweb("keys", "list", root=project)
    (row,) = listed.table
    assert row[:4] == ["deploy", f"{made.out[:15]}...", "run state", "deploy-*"]
    assert row[-1] == "never"
    (view,) = spyweb("keys", "list", "-o", "json", root=project).json
    assert (view["name"], view["scopes"], view["jobs"]) == ("deploy", ["run", "state"], ["deploy-*"])

    assert spyweb("keys", "revoke", "deploy", root=project).out == "deploy was revoked\n"
    assert spyweb("keys", "list", root=project).err == "no keys\n"
    again = spyweb("keys", "revoke", "deploy", root=project)
    assert (again.code, again.err) == (2, "spyweb: there is no key 'deploy': `spyweb keys list` shows them\n")


def test_a_key_reads_unless_more_is_said(project: Path) -> None:
    made = spyweb("keys", "add", "phone", "-o", "json", root=project)
    key = json.loads(made.out)
    assert (key["key"]["scopes"], key["is_first"]) == (["read"], True)
    assert spyweb("keys", "add", "tablet", "-o", "json", root=project).json["is_first"] is False
    assert key["token"].startswith(key["key"]["begins"])
    assert made.err.count("\n") <= 1  # that created a new database


def test_the_token_is_in_no_file_and_no_other_answer(project: Path) -> None:
    token = spyweb("keys", "add", "phone", root=project).out.strip()
    for words in (["list"], ["list", "-o", "json"], ["audit"], ["audit", "-o", "json"]):
        answer = spyweb("keys", *words, root=project)
        assert token[15:] not in answer.out + answer.err
    files = [path for path in project.rglob("*") if path.is_file()]
    assert any(path.name.startswith("spyweb.db") for path in files)
    assert not [path for path in files if token[15:].encode() in path.read_bytes()]


def test_what_was_done_is_on_record(project: Path) -> None:
    assert spyweb("keys", "audit", root=project).err == "the audit trail is empty\n"
    spyweb("keys", "add", "phone", root=project)
    spyweb("keys", "revoke", "phone", root=project)

    found = spyweb("keys", "audit", "-o", "json", root=project).json
    assert [(line["who"], line["action"], line["target"], line["status"]) for line in found] == [
        ("local", "DELETE /api/keys/{name}", "phone", 200),
        ("local", "POST /api/keys", "phone", 200),
    ]
    assert len(spyweb("keys", "audit", "-n", "1", root=project).table) == 1


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
