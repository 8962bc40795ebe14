"""The requests that have started runs, in every kind of store: each recorded with its run, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import CursorMoved
from spyweb.limits import IDEMPOTENCY_KEYS
from spyweb.model import JobId, Outcome, RunId, RunState, Trigger
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.store.model.runs import Change, End, NewRun, RequestKey
from spyweb.store.sqlite import runs
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import PRICES, make_cursor, make_end
from tests.fakes.clock import FakeClock
from tests.fakes.stores import opened

KEY = RequestKey(scope="prices", key=b"k1", fingerprint=b"f", at_ms=1_000)


def asked(
    request: RequestKey | None = KEY, *, payload: bytes | None = None, job: JobId = PRICES, due_ms: int | None = None
) -> NewRun:
    trigger = Trigger(type="webhook")
    return NewRun(
        job=job, state=RunState.RUNNING, trigger=trigger, due_ms=due_ms, payload=payload, request=request, started_ms=1
    )


async def start(store: Store, new: NewRun) -> RunId:
    (run,) = await store.runs.record(Change(new=[new]))
    assert run is not None
    return run


def with_key(key: bytes, at_ms: int) -> RequestKey:
    return RequestKey(scope="prices", key=key, fingerprint=b"f", at_ms=at_ms)


async def test_a_request_is_found_by_its_scope_and_key_with_the_run_that_it_has_started(store: Store) -> None:
    run = await start(store, asked())
    known = await store.requests.find("prices", b"k1")
    assert known is not None
    assert (known.run, known.fingerprint, known.at_ms) == (run, b"f", 1_000)
    assert await store.requests.find("news", b"k1") is None
    assert await store.requests.find("prices", b"k2") is None


async def test_a_change_that_is_refused_records_no_request(store: Store) -> None:
    with pytest.raises(CursorMoved):
        await store.runs.record(Change(expects={PRICES: make_cursor()}, new=[asked(payload=b"{}")]))
    assert await store.requests.find("prices", b"k1") is None
    assert await store.requests.payload(RunId(1)) is None


async def test_a_run_that_was_recorded_before_records_no_request(store: Store) -> None:
    await start(store, asked(None, due_ms=5))
    assert await store.runs.record(Change(new=[asked(due_ms=5)])) == [None]
    assert await store.requests.find("prices", b"k1") is None


async def test_a_key_that_is_used_again_stands_for_the_later_request(store: Store) -> None:
    await start(store, asked())
    later = await start(store, asked(with_key(b"k1", 1_000 + 2 * DAY_MS)))
    known = await store.requests.find("prices", b"k1")
    assert known is not None
    assert known.run == later


async def test_keys_of_yesterday_are_cleared_as_new_ones_come(store: Store) -> None:
    for number in range(6):
        await start(store, asked(with_key(b"old%d" % number, 1_000)))
    for number in range(3):
        await start(store, asked(with_key(b"new%d" % number, 1_000 + DAY_MS + HOUR_MS)))
    found = [await store.requests.find("prices", b"old%d" % number) for number in range(6)]
    assert found == [None] * 6
    assert await store.requests.find("prices", b"new0") is not None


async def test_only_so_many_keys_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "IDEMPOTENCY_KEYS", 3)
    assert IDEMPOTENCY_KEYS > 3
    async with opened("sqlite", tmp_path / "few.db", FakeClock()) as store:
        for number in range(8):
            await start(store, asked(with_key(b"k%d" % number, 1_000)))
        found = [await store.requests.find("prices", b"k%d" % number) for number in range(8)]
        assert [known is not None for known in found] == [False] * 5 + [True] * 3


async def test_a_payload_is_kept_until_its_run_has_ended(store: Store) -> None:
    run = await start(store, asked(payload=b'{"a":1}'))
    assert await store.requests.payload(run) == b'{"a":1}'
    await store.runs.record(Change(end=[payload_end(run)]))
    assert await store.requests.payload(run) is None


async def test_a_payload_stays_for_the_attempt_that_follows(store: Store) -> None:
    run = await start(store, asked(payload=b"[]"))
    retry = NewRun(
        job=PRICES,
        state=RunState.WAITING,
        trigger=Trigger(type="retry", of=run),
        attempt=2,
        follows=run,
        of_payload=run,
    )
    (second,) = await store.runs.record(Change(end=[payload_end(run)], new=[retry]))
    assert second is not None
    assert await store.requests.payload(run) == b"[]"

    await store.runs.record(Change(end=[payload_end(second, of=run)]))
    assert await store.requests.payload(run) is None


async def test_the_end_of_another_run_drops_no_payload(store: Store) -> None:
    run = await start(store, asked(payload=b"[]"))
    other = await start(store, asked(None))
    await store.runs.record(Change(end=[make_end(other)]))
    assert await store.requests.payload(run) == b"[]"


def payload_end(run: RunId, *, of: RunId | None = None) -> End:
    return End(run=run, ended_ms=2_000, outcome=Outcome.FAILED, of_payload=of or run)
