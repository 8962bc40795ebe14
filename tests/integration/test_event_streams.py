"""Streams of events over real sockets: resumed, refused, not read, and ended with the server."""

from __future__ import annotations

import asyncio
import resource
import time

import pytest

from spyweb.clock import RealClock
from spyweb.events.happenings import EventType, LogHappened
from spyweb.events.hub import EventHub
from spyweb.model import JobId, RunId
from spyweb.store.model.access import Scope
from spyweb.web import event_streams as module
from spyweb.web.app import socket_app, tcp_app
from spyweb.web.event_streams import StreamCounter
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.event_stream import followers, listened_to, publish_run, real_hub, serving, until

KEY = "X-SpyWeb-Key: sesame"


def service_of(hub: EventHub) -> FakeDaemonService:
    return FakeDaemonService(hub=hub, clock=RealClock())


async def test_what_happens_is_sent_as_it_happens_and_resumed_after_a_cut() -> None:
    hub = real_hub()
    async with serving(tcp_app(service_of(hub))) as served:
        client = await served.connect("/api/events?types=run")
        assert "content-type: text/event-stream" in client.head.lower()
        await client.marked()
        publish_run(hub, 1)
        found = await client.next()
        assert (found.event, found.fields) == ("run", {"what": "began", "job": "prices", "run": 1})
        client.close()

        publish_run(hub, 2)
        publish_run(hub, 3)
        by_header = await served.connect("/api/events?types=run", f"Last-Event-ID: {found.id}")
        by_query = await served.connect(f"/api/events?types=run&last_event_id={found.id}")
        for again in (by_header, by_query):
            assert [(await again.next()).fields["run"] for _ in range(2)] == [2, 3]


async def test_one_job_and_the_lines_of_its_log() -> None:
    hub = real_hub()
    async with serving(tcp_app(service_of(hub))) as served:
        await (await served.connect("/api/events?types=log&job=typo")).marked()  # which does not load
        client = await served.connect("/api/events?types=log,run&job=prices")
        await client.marked()
        publish_run(hub, 1, job="backup")
        line = LogHappened(job=JobId("prices"), level="info", text="größer\r\nid: x", at_ms=1, run=RunId(1))
        hub.publish(EventType.LOG, JobId("prices"), line)
        found = await client.next()
        assert (found.event, found.fields["text"]) == ("log", "größer\r\nid: x")


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("types=runs", 400, "expected some of run, job, state"),
        ("types=log", 400, "lines of a log are those of one job"),
        ("job=nowhere", 404, "nowhere"),
        ("types=" + "run," * 1000 + "x", 400, "expected some of"),
    ],
)
async def test_a_wrong_question_is_refused(query: str, status: int, words: str) -> None:
    hub = real_hub()
    async with serving(tcp_app(service_of(hub))) as served:
        client = await served.connect(f"/api/events?{query}")
        assert client.status == status
        assert words in (await client.reader.read(10_000)).decode()
    assert not followers(hub)


async def test_head_says_what_it_would_be() -> None:
    hub = real_hub()
    async with serving(tcp_app(service_of(hub))) as served:
        client = await served.connect("/api/events", method="HEAD")
        assert (client.status, "text/event-stream" in client.head) == (200, True)
    assert not followers(hub)


async def test_the_one_too_many_is_refused_with_a_code_and_another_comes_in_when_one_has_left() -> None:
    hub = real_hub()
    app = tcp_app(service_of(hub))
    app[module.EVENT_STREAMS] = StreamCounter(3, 20)
    async with serving(app) as served:
        clients = [await served.connect("/api/events") for _ in range(3)]
        refused = await served.connect("/api/events")
        assert (refused.status, "Retry-After: 10" in refused.head) == (503, True)
        assert b'"code":"busy"' in await refused.reader.readuntil(b"}")
        clients[0].close()
        await asyncio.sleep(0.1)  # the server notices by itself
        again = await served.connect("/api/events")
        assert again.status == 200


async def test_a_stop_is_not_delayed_by_open_streams() -> None:
    hub = real_hub()
    async with serving(tcp_app(service_of(hub))) as served:
        clients = [await served.connect("/api/events") for _ in range(5)]
        await listened_to(hub)
        began = time.monotonic()
    assert time.monotonic() - began < 0.5
    assert all([await client.ended() for client in clients])
    assert not followers(hub)


async def test_a_key_for_some_jobs_is_told_of_these_alone() -> None:
    hub = real_hub()
    service = FakeDaemonService(hub=hub, clock=RealClock(), api_key="sesame")
    made = await service.access.add("ci", [Scope.READ], ["back*"])
    async with serving(tcp_app(service)) as served:
        header = f"X-SpyWeb-Key: {made.token}"
        client = await served.connect("/api/events", header)
        await client.marked()
        publish_run(hub, 1, job="prices")
        publish_run(hub, 2, job="backup")
        assert (await client.next()).fields["run"] == 2
        for query in ("types=health", "types=audit", "types=log&job=prices", "job=prices"):
            assert (await served.connect(f"/api/events?{query}", header)).status == 403


async def test_a_quiet_stream_gives_signs_of_life_with_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.05)
    hub = real_hub()
    async with serving(tcp_app(service_of(hub))) as served:
        client = await served.connect("/api/events?types=run&job=prices")
        before = await client.marked()
        for number in range(5):
            publish_run(hub, number, job="backup")
        client.mark = ""
        while (after := await client.marked()) == before:
            client.mark = ""
        assert after == hub.mark()


async def test_whoever_does_not_read_holds_little_and_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALLED_S", 0.5)
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    hub = real_hub()
    async with serving(tcp_app(service_of(hub))) as served:
        for _ in range(50):
            await served.connect("/api/events?types=run", idle=True)
        reading = await served.connect("/api/events?types=run")
        await until(lambda: followers(hub) == 51)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = 0
        async with asyncio.timeout(20):
            while followers(hub) > 1:
                for _ in range(50):
                    count += 1
                    publish_run(hub, count, reason="x" * 200)
                await asyncio.sleep(0.01)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown < 20 << 20, "200 KB each, with what the events themselves take"
        assert (await reading.next()).event == "run"


async def test_the_socket_has_it_too() -> None:
    hub = real_hub()
    async with serving(socket_app(service_of(hub))) as served:
        client = await served.connect("/api/events?types=audit,health")
        assert client.status == 200
