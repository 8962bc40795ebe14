"""Keys and the audit trail over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.keys import Doors


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
    assert [(line["action"], line["target"]) for line in lines] == [
        ("POST /api/keys", "c"),
        ("POST /api/keys", "b"),
    ]
    _, rest = await send(doors, "GET", f"/api/audit?before={lines[-1]['id']}")
    assert len(rest) == 1
    assert (await send(doors, "GET", "/api/audit?limit=0"))[0] == 400
