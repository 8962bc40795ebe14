"""One run for a request, however often it is sent."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from spyweb.errors import KeyReused, Refused, StoreError
from spyweb.model import JobId, Never, Overlap, Trigger
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import Claims, RunRequest
from spyweb.store.model.runs import RequestKey
from spyweb.subjects.runs.service import KEPT_MS, OnceService, StartedRun, request_key
from tests.fakes.clock import settle
from tests.fakes.hanging import HangingRecord
from tests.fakes.harness import Harness, harness, make_job

PRICES = JobId("prices")


@dataclass(slots=True)
class Asked:
    t: Harness
    job: LiveJob
    once: OnceService

    async def ask(self, key: str | None = "k1", asked: bytes = b"body") -> StartedRun:
        known = None if key is None else request_key("hook prices", key, asked, self.t.clock.now_ms())
        return await self.once.start(known, self._start)

    def _start(self, key: RequestKey | None) -> Claims:
        return self.t.runner.start_by_hand(self.job, RunRequest(trigger=Trigger(type="webhook"), key=key))

    async def count(self) -> int:
        return len(await self.t.record())

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[tuple[HangingRecord, Future[StartedRun]]]:
        """Ask, of a store that does not answer until the end of the block."""
        runs = self.t.store.runs
        with patch.object(runs, "record", HangingRecord(runs.record)) as hanging:
            first = asyncio.ensure_future(self.ask())
            await settle()
            yield hanging, first


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    async with harness() as t:
        await t.settle(job := make_job(schedule=Never(), overlap=Overlap.ALLOW))
        yield Asked(t, job, OnceService(t.store.requests, t.clock))
        await t.clock.turn()


async def test_a_repeated_request_gets_the_first_answer_and_starts_nothing(asked: Asked) -> None:
    first = await asked.ask()
    await asked.t.clock.turn(60)
    again = await asked.ask()
    assert (again.run, first.is_repeated, again.is_repeated) == (first.run, False, True)
    assert await asked.count() == 1


async def test_requests_without_a_key_or_with_another_start_a_run_each(asked: Asked) -> None:
    runs = [(await asked.ask(key)).run for key in (None, None, "k1", "k2")]
    assert len(set(runs)) == 4


async def test_the_same_key_with_another_request_is_refused(asked: Asked) -> None:
    await asked.ask()
    with pytest.raises(KeyReused):
        await asked.ask(asked=b"another body")
    assert await asked.count() == 1


async def test_a_key_is_forgotten_after_a_day(asked: Asked) -> None:
    first = await asked.ask()
    await asked.t.clock.turn(KEPT_MS / 1000 - 1)
    assert (await asked.ask()).run == first.run
    await asked.t.clock.turn(2)
    assert (await asked.ask()).run != first.run


async def test_a_request_that_comes_while_the_first_is_under_way_is_refused(asked: Asked) -> None:
    async with asked.hanging() as (hanging, first):
        with pytest.raises(Refused, match="under way"):
            await asked.ask()
        with pytest.raises(KeyReused):
            await asked.ask(asked=b"another body")
    await hanging.grant()
    assert (await asked.ask()).run == (await first).run


async def test_a_client_that_has_hung_up_may_repeat_its_request_and_starts_no_second_run(asked: Asked) -> None:
    async with asked.hanging() as (hanging, first):
        first.cancel()
        await settle()
        with pytest.raises(Refused, match="under way"):
            await asked.ask()
    await hanging.grant()
    assert (await asked.ask()).is_repeated
    assert await asked.count() == 1


async def test_what_the_store_refused_may_be_tried_again_with_the_same_key(asked: Asked) -> None:
    async with asked.hanging() as (hanging, first):
        await hanging.refuse()
        with pytest.raises(StoreError):
            await first
    assert not (await asked.ask()).is_repeated


async def test_what_the_job_refused_may_be_tried_again_with_the_same_key(asked: Asked) -> None:
    def refuse(_: RequestKey | None) -> Claims:
        raise Refused("busy")

    key = request_key("hook prices", "k1", b"body", asked.t.clock.now_ms())
    with pytest.raises(Refused, match="busy"):
        await asked.once.start(key, refuse)
    assert not (await asked.ask()).is_repeated
    assert await asked.count() == 1


async def test_a_daemon_that_has_begun_anew_knows_the_requests_of_the_one_before(asked: Asked) -> None:
    first = await asked.ask()
    asked.once = OnceService(asked.t.store.requests, asked.t.clock)
    assert (await asked.ask()).run == first.run


def test_keys_of_any_text_are_told_apart() -> None:
    keys = ["a", "A", "", " ", "ü", "\udcff", "a" * 10_000]
    assert len({request_key("s", key, b"", 0).key for key in keys}) == len(keys)
