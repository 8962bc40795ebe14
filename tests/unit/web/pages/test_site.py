"""What all pages have in common: how they are declared, where they are, who may see them, how errors look."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientSession, FormData
from backports import zstd
from msgspec.structs import replace

from spyweb.events.happenings import EventType, RunHappened
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import SignSeen
from spyweb.model import Outcome, RunId
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.access import NewAuditLine, Scope
from spyweb.store.model.incidents import SubjectEvent
from spyweb.subjects.access import pages as keys
from spyweb.subjects.events import pages as events
from spyweb.subjects.health import pages as health
from spyweb.subjects.outbox import pages as outbox
from spyweb.subjects.records import pages as records
from spyweb.subjects.state import pages as state
from spyweb.subjects.when import pages as when
from spyweb.subjects.when.pages import ROWS
from spyweb.web.access.principal import LOOPBACK
from tests.fakes.client import Client
from tests.fakes.clock import settle
from tests.fakes.daemon_service import (
    BACKUP,
    NOW_MS,
    PRICES,
    CrowdedCalendar,
    FakeDaemonService,
    make_run,
    make_vitals,
    unsent_message,
)
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of, signed_in, three_rows
from tests.fakes.findings import item
from tests.fakes.incidents import fail


async def test_a_page_forbids_whatever_it_does_not_use() -> None:
    async with dashboard() as client, client.get("/", headers={"Accept": "text/html"}) as answer:
        nonce = re.search(r'<script [^>]*nonce="([^"]{22})"', await answer.text())
        assert nonce
        assert answer.headers["Content-Security-Policy"] == (
            f"default-src 'self'; script-src 'nonce-{nonce[1]}'; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.content_type == "text/html"


async def test_an_unknown_address_offers_what_is_close() -> None:
    page = await page_of("/helth", status=404)
    assert '<a href="/health"><bdi>Health</bdi></a>' in page


async def test_what_is_no_path_is_an_unknown_address() -> None:
    async with dashboard() as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        writer.close()


async def test_a_head_is_answered_as_a_page_without_one() -> None:
    async with dashboard() as client, client.head("/", headers={"Accept": "text/html"}) as answer:
        assert answer.status == 200
        assert await answer.read() == b""


async def test_a_wrong_method_is_a_page_in_plain_words() -> None:
    async with dashboard() as client, client.post("/", headers={"Accept": "text/html"}) as answer:
        assert answer.status == 405
        assert "Not possible here</h1>" in await answer.text()


@pytest.mark.parametrize("back", ["//evil.example/", "https://evil.example", "/\\evil.example", "", "/a\nb"])
async def test_a_form_never_leads_to_another_site(back: str) -> None:
    async with dashboard() as client:
        data = FormData({"back": back, "theme": "dark"})
        async with client.post("/theme", data=data, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")


async def test_what_is_no_theme_is_as_the_system_has_it() -> None:
    async with dashboard() as client:
        assert '<html lang="en">' in (await get_page(client, "/", Cookie='spyweb_theme="><b>'))[1]
        async with client.post("/theme", data={"theme": "auto"}, allow_redirects=False) as answer:
            assert answer.cookies["spyweb_theme"]["max-age"] == "0"


async def raw(client: Client, path: str, accepted: str) -> tuple[str, bytes]:
    async with ClientSession(auto_decompress=False) as session:
        headers = {"Accept": "text/html", "Accept-Encoding": accepted}
        async with session.get(client.make_url(path), headers=headers) as answer:
            return answer.headers.get("Content-Encoding", ""), await answer.read()


async def test_a_page_is_compressed_as_its_reader_likes_it() -> None:
    async with dashboard() as client:
        encoding, plain = await raw(client, "/", "identity")
        assert encoding == ""
        encoding, zipped = await raw(client, "/", "gzip, deflate")
        assert (encoding, len(gzip.decompress(zipped))) == ("gzip", len(plain))
        encoding, better = await raw(client, "/", "gzip, br, zstd")
        assert (encoding, len(zstd.decompress(better))) == ("zstd", len(plain))
        assert len(zipped) < len(plain) / 3


async def test_a_file_is_kept_for_ever_and_told_apart_by_its_address() -> None:
    async with dashboard() as client:
        _, page = await get_page(client, "/")
        address = re.findall(r'href="([^"]*style.css)"', page)[0]
        async with client.get(address) as answer:
            assert answer.content_type == "text/css"
            assert "immutable" in answer.headers["Cache-Control"]
        async with client.get("/static/other/style.css") as answer:
            assert answer.headers["Cache-Control"] == "no-cache"
        for missing in ("/static/x/nothing.css", "/static/x/..%2Frender.py"):
            assert (await get_page(client, missing))[0] == 404


async def test_a_file_comes_compressed() -> None:
    async with dashboard() as client:
        encoding, zipped = await raw(client, "/static/x/live.js", "gzip")
        assert encoding == "gzip"
        assert b"EventSource" in gzip.decompress(zipped)


@pytest.mark.parametrize(
    ("path", "said", "taught"),
    [
        ("/records", "No records yet</h1>", "jobs/news/config.toml"),
        ("/outbox", "No undelivered messages</h1>", "[webhook]"),
        ("/keys", "No key yet: this machine has all rights</h1>", "spyweb keys add anna --scope admin"),
        ("/channels", "No notification channel: nobody is notified</h1>", "[channels.phone]"),
        ("/incidents", "No incident is open</h1>", "[channels.phone]"),
        ("/incidents?job=prices", "No incident of this job has closed.", ""),
        ("/incidents?before=1", "No older incidents.", ""),
        ("/maintenance", "No maintenance in the next 7 days</h1>", "[[maintenance]]"),
        ("/when", "Nothing is due in the next 24 hours</h1>", "cron = "),
        ("/state?namespace=global", "Keys of", "global_store_set("),
        ("/state?namespace=job:prices", "Keys of", "store_set("),
    ],
)
async def test_a_page_without_anything_teaches_how_to_have_some(path: str, said: str, taught: str) -> None:
    service = make_dashboard_service()
    service.alert_settings = AlertSettings()
    service.calendar = CrowdedCalendar(jobs=0, gaps_known=0)
    service.maintenance.rules = ()
    page = await page_of(path, service)
    assert said in page
    assert taught in page


async def test_who_may_only_look_sees_no_button() -> None:
    service = make_dashboard_service()
    service.known_runs = [make_run(8, outcome=Outcome.FAILED)]
    service.unsent = [unsent_message(1)]
    await fail(service.stored_incidents, "backup")
    await service.state.put("global", b"a", b"1", None)
    await service.state.store.locks.acquire(b"export", b"me", None, 60_000)
    reader = await signed_in(service, Scope.READ)
    admin = {"X-SpyWeb-Key": (await service.access.add("root", [Scope.ADMIN])).token}
    async with dashboard(service) as client:
        for path, *buttons in (
            ("/", "Run now"),
            ("/jobs/backup", "Run now", "/silence"),
            ("/runs/8", "Run again"),
            ("/incidents", '/acknowledge"', "/silence"),
            ("/incidents/1", '/acknowledge"', "/silence"),
            ("/channels", "Test notification"),
            ("/outbox", "/outbox/1/retry", "Send all again"),
            ("/state?namespace=global&key=a", "<textarea", "Delete…", "Break…"),
        ):
            seen = [(await get_page(client, path, **headers))[1] for headers in (reader, admin)]
            for button in buttons:
                assert [button in page for page in seen] == [False, True], (path, button)


async def fill_outbox(service: FakeDaemonService, count: int) -> None:
    service.unsent = [unsent_message(n) for n in range(count, 0, -1)]


async def fill_trail(service: FakeDaemonService, count: int) -> None:
    for _ in range(count):
        line = NewAuditLine(at_ms=NOW_MS, who="anna", source="key", action="POST /x", status=403)
        service.trail.note(line)


async def fill_keys(service: FakeDaemonService, count: int) -> None:
    for n in range(count):
        await service.access.add(f"k{n:03}", [Scope.ADMIN])


async def fill_records(service: FakeDaemonService, count: int) -> None:
    await service.found.records.add(PRICES, [item(f"no {n}") for n in range(count)])


async def fill_state(service: FakeDaemonService, count: int) -> None:
    for n in range(count):
        await service.state.put("global", f"k{n:03}".encode(), b"v", None)


async def fill_day(service: FakeDaemonService, count: int) -> None:
    service.calendar = CrowdedCalendar(jobs=count, gaps_known=0)


async def fill_gaps(service: FakeDaemonService, count: int) -> None:
    service.calendar = CrowdedCalendar(jobs=0, gaps_known=count)


async def fill_workers(service: FakeDaemonService, count: int) -> None:
    pool = make_vitals().pool
    service.measured = make_vitals(pool=replace(pool, workers=list(pool.workers) * count))


async def fill_events(service: FakeDaemonService, count: int) -> None:
    await page_of("/events", service)  # from then on it listens
    for n in range(count):
        service.events.publish(EventType.RUN, PRICES, RunHappened(what="began", job=PRICES, run=RunId(n)))


@pytest.mark.parametrize(
    ("path", "row", "shown", "fill"),
    [
        ("/outbox", '<tr id="m-', outbox.MESSAGES, fill_outbox),
        ("/keys", '<tr id="l-', keys.LINES, fill_trail),
        ("/keys", '<tr id="k-', keys.KEYS, fill_keys),
        ("/records?q=no", "</a></h3>", records.RECORDS, fill_records),
        ("/state?namespace=global", '#one">', state.KEYS, fill_state),
        ("/when", '<svg viewBox="0 0 97 1"', ROWS, fill_day),
        ("/when?job=prices", '<tr id="g-', when.GAPS, fill_gaps),
        ("/health", '<tr><th scope="row">', health.WORKERS, fill_workers),
        ("/events", "<li id=", events.EVENTS, fill_events),
    ],
)
async def test_a_long_list_is_shown_a_page_at_a_time(
    path: str, row: str, shown: int, fill: Callable[[FakeDaemonService, int], Awaitable[None]]
) -> None:
    service = make_dashboard_service()
    await fill(service, shown + 3)
    known = service.access.all_keys()
    headers = await signed_in(service, Scope.ADMIN) if known else {}
    async with dashboard(service) as client:
        _, page = await get_page(client, path, **headers)
        assert page.count(row) == shown
        (further,) = re.findall(r'href="([^"#]+)[^"]*" rel="next"', page)
        assert path.partition("?")[2] in further
        _, page = await get_page(client, further.replace("&amp;", "&"), **headers)
    assert page.count(row) == 3 + bool(known)  # the key of who asks
    if fill in (fill_outbox, fill_trail, fill_events):
        assert "data-mark" not in page, "what is older does not change"


async def with_incidents(service: FakeDaemonService) -> FakeDaemonService:
    """One of backup, and one of a channel."""
    await fail(service.stored_incidents, BACKUP)
    seen = SubjectEvent(subject="channel:ops", event=SignSeen("down", "x"), policy=AlertPolicy(), at_ms=0)
    await service.stored_incidents.note([seen])
    return service


async def test_what_is_open_is_no_good_news_though_all_jobs_are_well() -> None:
    service = make_dashboard_service([row for row in three_rows() if row.job.id == "prices"])
    assert (await service.outlook(LOOPBACK)).state == "ok"
    await with_incidents(service)
    await settle()
    assert (await service.outlook(LOOPBACK)).state == "warn"


async def test_the_first_page_says_what_is_open_and_since_when() -> None:
    service = make_dashboard_service()
    assert "incident" not in (await page_of("/", service)).partition("<main")[2].partition("</main")[0]
    await fail(service.stored_incidents, BACKUP)
    page = await page_of("/", service)
    assert page.count("Incident 1") == 1  # in the list of jobs that need attention, not in the line as well
    assert '<a href="/incidents/1">Incident 1</a>, not acknowledged.' in page.partition('id="attention"')[2]
    await with_incidents(service)
    page = await page_of("/", service)
    assert '<a href="/incidents/2">Incident 2 is open</a>: <bdi>Channel ops</bdi>' in page
