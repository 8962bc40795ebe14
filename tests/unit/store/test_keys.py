"""Keys, sessions and the audit trail, in every kind of store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.store.model.access import LINES_KEPT, AccessKey, BrowserSession, KeyId, NewAuditLine, NewKey, Scope
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import columns_of
from spyweb.store.sqlite.store import Store
from tests.fakes.stores import ENGINES

STORES = ENGINES

PHONE = NewKey(name="phone", handle="aaaa", hash=b"\x01" * 32, scopes=(Scope.READ,), created_ms=1_000)
DEPLOY = NewKey(
    name="deploy",
    handle="bbbb",
    hash=b"\x02" * 32,
    scopes=(Scope.RUN, Scope.STATE),
    jobs=("deploy-*",),
    created_ms=2_000,
)


async def add(store: Store, new: NewKey) -> AccessKey:
    key = await store.keys.add(new)
    assert key
    return key


def session(letter: bytes = b"s", key: KeyId | None = None, seen_ms: int = 5_000) -> BrowserSession:
    return BrowserSession(hash=letter * 32, key=key, created_ms=5_000, seen_ms=seen_ms)


@pytest.mark.parametrize("change", [{"handle": "cccc"}, {"name": "tablet"}])
async def test_a_name_and_a_handle_are_given_once(store: Store, change: dict[str, str]) -> None:
    await add(store, PHONE)

    assert await store.keys.add(replace(PHONE, hash=b"\x03" * 32, **change)) is None
    assert [key.hash for key in await store.keys.all()] == [PHONE.hash]


async def test_a_key_that_is_removed_takes_its_sessions_along(store: Store) -> None:
    phone, deploy = await add(store, PHONE), await add(store, DEPLOY)
    for each in (session(b"a", phone.id), session(b"b", deploy.id), session(b"c")):
        await store.keys.add_session(each)

    assert await store.keys.remove("phone")
    assert not await store.keys.remove("phone")

    assert [key.name for key in await store.keys.all()] == ["deploy"]
    assert await store.keys.sessions() == [session(b"b", deploy.id), session(b"c")]


async def test_no_session_is_added_of_a_key_that_is_gone(store: Store) -> None:
    phone = await add(store, PHONE)
    await store.keys.remove("phone")

    await store.keys.add_session(session(key=phone.id))

    assert await store.keys.sessions() == []


async def test_sessions_are_seen_ended_and_in_the_order_in_which_they_were_seen(store: Store) -> None:
    for each in (session(b"a"), session(b"b"), session(b"c")):
        await store.keys.add_session(each)
    for letter in (b"a", b"x"):
        await store.keys.session_seen(letter * 32, 9_000)

    assert [each.hash[:1] for each in await store.keys.sessions()] == [b"b", b"c", b"a"]

    await store.keys.end_sessions([b"b" * 32, b"a" * 32, b"x" * 32])

    assert await store.keys.sessions() == [session(b"c")]


async def test_the_secret_of_links_is_made_once(store: Store) -> None:
    key = await store.keys.link_key()
    assert len(key) == 32
    assert await store.keys.link_key() == key


def line(at_ms: int) -> NewAuditLine:
    action = "POST /api/jobs/{job}/trigger"
    return NewAuditLine(
        at_ms=at_ms, who="phone", source="key", action=action, job="prices", status=200, address="10.0.0.1", times=2
    )


async def test_only_the_newest_are_kept(store: Store) -> None:
    columns = columns_of(NewAuditLine)
    repeat = f"""
        WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {LINES_KEPT})
        INSERT INTO audit ({columns}) SELECT {columns.replace('"at_ms"', "i")} FROM audit CROSS JOIN n
    """
    await store.audit.add(line(0))
    await store._connections.writer.submit(OpKind.WRITE, lambda connection: connection.execute(repeat).rowcount)
    await store.audit.add(line(LINES_KEPT + 1))

    kept = await store.audit.list(limit=LINES_KEPT * 2)

    assert len(kept) == LINES_KEPT
    assert (kept[0].at_ms, kept[-1].at_ms) == (LINES_KEPT + 1, 2)
