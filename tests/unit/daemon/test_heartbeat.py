"""When the watcher elsewhere is pinged, and what it is sent when spyweb does not work."""

from __future__ import annotations

import asyncio
from asyncio import Future
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.heartbeat import Heartbeat
from spyweb.errors import FetchError, StoreError
from spyweb.model import JobId
from spyweb.settings.sections import HeartbeatSettings
from spyweb.store.model.messages import Channel, NewMessage, Target
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import FakeHttp, make_response

WRITTEN = "https://hc.example/${PING_KEY}/spyweb?create=1"
URL = "https://hc.example/ping-key/spyweb?create=1"
FAIL = "https://hc.example/ping-key/spyweb/fail?create=1"
ALERT = NewMessage(job=JobId(""), target=Target(Channel.ALERT, "phone"), payload=b"{}")
WEBHOOK = NewMessage(job=JobId(""), target=Target(Channel.WEBHOOK, "https://example.org/"), payload=b"{}")


class StubbornStore(MemoryStore):
    """A store whose disk may refuse, or hang."""

    error: Exception | None = None
    hangs = False
    tries = 0

    def try_write(self) -> Future[None]:
        self.tries += 1
        done: Future[None] = asyncio.get_running_loop().create_future()
        if self.error:
            done.set_exception(self.error)
        elif not self.hangs:
            done.set_result(None)
        return done


@dataclass
class Beating:
    clock: FakeClock
    http: FakeHttp
    store: StubbornStore
    settings: HeartbeatSettings = field(default_factory=lambda: HeartbeatSettings(url=WRITTEN))
    lag_ms: int = 0
    answering: int = 2
    answers: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heartbeat = Heartbeat(
            settings=lambda: self.settings,
            http=self.http,
            store=self.store,
            lag_ms=lambda: self.lag_ms,
            answering=lambda: self.answering,
            environ={"PING_KEY": "ping-key"},
            clock=self.clock,
        )

    @property
    def error(self) -> str:
        assert self.heartbeat.health
        return self.heartbeat.health.error

    async def go_on(self, seconds: int) -> list[str]:
        """Look every five seconds, as the daemon does; return what is sent meanwhile."""
        before, began = len(self.http.asked), self.clock.monotonic()
        while self.clock.monotonic() < began + seconds:
            async with asyncio.TaskGroup() as tasks:
                look = tasks.create_task(self.heartbeat.look())
                await self.clock.turn(5)
                if not look.done():
                    await self.clock.turn(15)
        sent = self.http.asked[before:]
        return [f"{fetch.method} {fetch.url} {(fetch.body or b'').decode()}".strip() for fetch in sent]


@pytest.fixture
async def b() -> Beating:
    clock = FakeClock()
    return Beating(clock=clock, http=FakeHttp(), store=StubbornStore(clock))


async def test_while_all_is_well_the_address_is_asked_for_at_each_interval(b: Beating) -> None:
    assert await b.go_on(300) == [f"GET {URL}"] * 5
    (fetch, *_) = b.http.asked
    assert (fetch.timeout_s, fetch.whole) == (10.0, False)
    assert b.heartbeat.health
    assert (b.error, b.heartbeat.health.problem) == ("", "")


async def test_without_an_address_nobody_is_pinged_and_nothing_is_written(b: Beating) -> None:
    b.settings = HeartbeatSettings()
    assert await b.go_on(120) == []
    assert (b.heartbeat.health, b.store.tries) == (None, 0)


async def test_an_edit_of_the_settings_counts_at_once(b: Beating) -> None:
    await b.go_on(60)
    b.settings = HeartbeatSettings(url="https://other.example/x", every_ms=10_000)
    assert (await b.go_on(20))[-1] == "GET https://other.example/x"
    b.settings = HeartbeatSettings()
    assert await b.go_on(60) == []
    b.settings = HeartbeatSettings(url=URL)
    assert await b.go_on(5) == [f"GET {URL}"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("lag_ms", 5_001, "due runs do not start, for 2m5s now"), ("answering", 0, "no worker answers, for 2m5s now")],
)
async def test_what_stands_still_for_two_minutes_is_told_once_a_minute(
    b: Beating, name: str, value: int, said: str
) -> None:
    await b.go_on(60)
    setattr(b, name, value)
    b.settings = HeartbeatSettings(url=URL, every_ms=15_000)
    sent = await b.go_on(240)
    failures = [line for line in sent if line.startswith("POST")]
    assert failures[0] == f"POST {FAIL} {said}"
    assert len(failures) == 2, "once a minute, however often it would ping"
    assert sent.index(failures[0]) == 8, "what has only just stopped may go on in a moment"
    setattr(b, name, 0 if name == "lag_ms" else 2)
    assert set(await b.go_on(60)) == {f"GET {URL}"}


async def test_a_disk_that_takes_nothing_is_told_though_the_database_answers(b: Beating) -> None:
    await b.go_on(60)
    b.store.error = StoreError("database or disk is full")
    sent = await b.go_on(180)
    assert sent[-1] == f"POST {FAIL} nothing is stored (database or disk is full), for 3m now"


async def test_a_write_that_hangs_is_told_and_no_second_one_waits_behind_it(b: Beating) -> None:
    await b.go_on(60)
    b.store.hangs, before = True, b.store.tries
    sent = await b.go_on(240)
    assert sent[-1].startswith(f"POST {FAIL} nothing is stored, for ")
    assert b.store.tries == before + 1


async def test_people_who_are_not_told_are_a_failure_and_other_messages_are_not(b: Beating) -> None:
    await b.store.outbox.add([WEBHOOK])
    await b.go_on(60)
    await b.store.outbox.add([ALERT])
    assert set(await b.go_on(900)) == {f"GET {URL}"}
    sent = await b.go_on(120)
    assert sent[-1].startswith(f"POST {FAIL} a message about an incident has waited for 16m")


async def test_a_ping_that_does_not_arrive_is_shown_and_logged_once_without_the_address(b: Beating) -> None:
    refused = FetchError("connect", "could not connect to hc.example:443: /ping-key/spyweb?create=1")
    b.http.answers = {URL: refused}
    with capture_logs() as lines:
        await b.go_on(180)
        assert b.error == "connect: could not connect to hc.example:443: /***/***?***=1"
        b.http.answers = {URL: make_response(status=404, body=b"not found")}
        await b.go_on(60)
        assert b.error == "answered 404"
        b.http.answers = {}
        await b.go_on(60)
    assert [line["event"] for line in lines] == ["the heartbeat has not arrived", "the heartbeat arrives again"]
    assert "ping-key" not in str(lines)
    assert b.error == ""


async def test_a_variable_that_is_not_set_is_named(b: Beating) -> None:
    b.settings = HeartbeatSettings(url="https://hc.example/${OTHER}")
    assert await b.go_on(60) == []
    assert b.error == "the variable OTHER is not set"
