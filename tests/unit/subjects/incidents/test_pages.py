"""The pages of incidents, and incidents in words."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from yarl import URL

from spyweb.incidents.policy import AlertPolicy, Level
from spyweb.incidents.truth import Failed, SignSeen
from spyweb.model import JobId
from spyweb.store.model.access import Scope
from spyweb.store.model.incidents import AlertChannelNow, OpenIncident, SubjectEvent, SubjectNow
from spyweb.subjects.incidents import words
from spyweb.subjects.incidents.pages import OPEN_SHOWN, PAST_SHOWN
from spyweb.subjects.incidents.service import IncidentService
from spyweb.subjects.incidents.views import IncidentChannel, IncidentNote, SignView
from tests.fakes.daemon_service import BACKUP, MARKUP, NOW_MS, PRICES, FakeDaemonService
from tests.fakes.dashboard import (
    POST,
    dashboard,
    get_page,
    make_dashboard_service,
    page_of,
    post_form,
    signed_in,
    three_rows,
)
from tests.fakes.incidents import KNOWN, Now, fail, succeed


async def with_incidents() -> FakeDaemonService:
    """One of prices that is over, and one of backup that is open."""
    service = make_dashboard_service()
    await fail(service.stored_incidents, PRICES)
    await succeed(service.stored_incidents, PRICES)
    await fail(service.stored_incidents, BACKUP, "no route")
    return service


def ids(page: str) -> list[str]:
    return re.findall(r'id="i-(\d+)"', page)


async def test_open_ones_come_first_and_then_those_that_are_over() -> None:
    async with dashboard(await with_incidents()) as client:
        status, page = await get_page(client, "/incidents")
        assert (status, ids(page)) == (200, ["2", "1"])
        assert "1\N{NO-BREAK SPACE}incident open</h1>" in page
        assert "not acknowledged yet" in page
        assert '<b id="count-incidents">1</b>' in page
        assert 'formaction="/incidents/2/acknowledge"' in page
        assert 'formaction="/jobs/backup/silence" name="value" value="8h"' in page
        for path, expected in (
            ("?state=open", ["2"]),
            ("?state=closed", ["1"]),
            ("?job=backup", ["2"]),
            ("?job=prices", ["1"]),
            ("?job=Backup", ["2"]),
            ("?job=gone", []),
            ("?state=open&job=prices", []),
            ("?state=nonsense", ["2", "1"]),
            ("?before=2", ["1"]),
        ):
            assert ids((await get_page(client, f"/incidents{path}"))[1]) == expected, path


async def test_many_are_shown_a_page_at_a_time() -> None:
    service = make_dashboard_service()
    for number in range(PAST_SHOWN + 1):
        await fail(service.stored_incidents, f"over{number}")
        await succeed(service.stored_incidents, f"over{number}")
    for number in range(OPEN_SHOWN + 1):
        await fail(service.stored_incidents, f"open{number}")
    async with dashboard(service) as client:
        _, page = await get_page(client, "/incidents")
        assert len(ids(page)) == OPEN_SHOWN + PAST_SHOWN
        more, older = re.findall(r'href="(/incidents\?[^"]+)" rel="next"', page.replace("More that", '" rel="next"'))[
            :2
        ]
        _, page = await get_page(client, older.replace("&amp;", "&"))
        assert ids(page) == ["1"]
        assert "data-mark" not in page
        _, page = await get_page(client, more.replace("&amp;", "&"))
        assert ids(page) == [str(PAST_SHOWN + 2)]


async def test_one_is_shown_with_all_that_is_known() -> None:
    service = await with_incidents()
    await service.incidents.silence(BACKUP, 3_600_000, "anna")
    async with dashboard(service) as client:
        status, page = await get_page(client, "/incidents/2")
        assert status == 200
        assert re.search(r"<bdi>Backup</bdi>: failing since <time", page)
        assert "<strong" in page
        assert "no route</strong>" in page
        assert 'href="/runs/7">run 7</a>' in page
        assert "silenced by anna" in page
        assert 'formaction="/jobs/backup/unsilence"' in page
        _, page = await get_page(client, "/incidents/1")
        assert re.search(r"<bdi>prices</bdi>: recovered after ", page)
        assert '<dt>closed by</dt><dd><a href="/runs/7">run 7</a>' in page
        assert '/acknowledge"' not in page
        for path in ("/incidents/3", "/incidents/x", "/incidents/99999999999999999999", "/incidents/0x1"):
            assert (await get_page(client, path))[0] == 404, path


async def test_several_signs_are_told_one_by_one() -> None:
    service = await with_incidents()
    policy = AlertPolicy(after_failures=1, level=Level.CRITICAL)
    seen = [
        SubjectEvent(subject="job:both", event=event, policy=policy, at_ms=NOW_MS)
        for event in (Failed("no disk"), SignSeen("drift", "a file differs"))
    ]
    await service.stored_incidents.note(seen)
    page = await page_of("/incidents/3", service)
    assert ids(await page_of("/incidents?state=open", service)) == ["3", "2"], "the gravest first"
    await fail(service.stored_incidents, PRICES)
    assert ids(await page_of("/incidents?state=open", service)) == ["3", "4", "2"]
    assert ">Problems</h2>" in page
    assert ("<code>no disk</code>" in page, "<code>a file differs</code>" in page) == (True, True)


async def test_somebody_takes_care_and_it_says_who() -> None:
    service = await with_incidents()
    await fail(service.stored_incidents, PRICES)
    for number, given, status, by in (
        (2, {"by": " Anna \n B. "}, 303, "Anna B."),
        (2, {"by": "Ben"}, 303, "Anna B."),  # who was first
        (3, {}, 303, "somebody at this machine"),
        (1, {}, 409, ""),
        (9, {}, 404, ""),
    ):
        assert (await post_form(service, f"/incidents/{number}/acknowledge", None, **given))[0] == status, number
        if by:
            assert (await service.incidents.get(number)).acked_by == by
    page = await page_of("/incidents", service)
    assert "acknowledged by <strong><bdi>somebody at this machine</bdi></strong>" in page
    assert not re.search(r'incidents/\d+/acknowledge"', page)


async def test_an_acknowledgement_is_withdrawn_once() -> None:
    service = await with_incidents()
    await post_form(service, "/incidents/2/acknowledge", None)
    assert 'formaction="/incidents/2/unacknowledge"' in await page_of("/incidents/2", service)
    assert [(await post_form(service, "/incidents/2/unacknowledge", None, by="anna"))[0] for _ in range(2)] == [
        303,
        409,
    ]
    found = await service.incidents.get(2)
    assert (found.acked_ms, found.acked_by, found.notes[-1].text) == (None, "", "acknowledgement withdrawn by anna")


async def test_a_note_is_added_by_one_of_two_buttons_also_when_it_is_over() -> None:
    service = await with_incidents()
    for value, text in (("", "ask Ann"), ("public", "a full <disk>")):
        given = {"value": value, "text": text, "by": "Ann"}
        assert (await post_form(service, "/incidents/1/note", None, **given))[0] == 303
    notes = (await service.incidents.get(1)).notes[-2:]
    assert [(each.text, each.by, each.is_public) for each in notes] == [
        ("ask Ann", "Ann", False),
        ("a full <disk>", "Ann", True),
    ]
    page = await page_of("/incidents/1", service)
    assert "<strong>Ann</strong> (public): a full &lt;disk&gt;" in page
    assert page.count('formaction="/incidents/1/note"') == 2
    assert (await post_form(service, "/incidents/1/note", None, text=" "))[0] == 409
    assert (await post_form(service, "/incidents/9/note", None, text="x"))[0] == 404


async def test_several_are_acknowledged_and_silenced_by_one_form_and_closed_ones_are_left_out() -> None:
    service = await with_incidents()
    await fail(service.stored_incidents, PRICES)
    page = await page_of("/incidents", service)
    assert re.findall(r'name="(incident-\d+)"', page) == ["incident-3", "incident-2"]
    assert " checked" in await page_of("/incidents?select=all", service)
    chosen = {f"incident-{number}": "yes" for number in (1, 2, 3, 9)}
    for by in ("anna", "bert"):
        assert (await post_form(service, "/incidents/acknowledge", None, by=by, **chosen))[0] == 303
    found = [await service.incidents.get(number) for number in (1, 2, 3)]
    assert [each.acked_by for each in found] == ["", "anna", "anna"]
    assert not any("bert" in note.text for each in found for note in each.notes)
    assert (await post_form(service, "/incidents/silence", None, **{"for": "1h", "incident-2": "yes"}))[0] == 303
    assert await service.incidents.silence_of(BACKUP) is not None
    assert await service.incidents.silence_of(PRICES) is None
    for path, given in (("acknowledge", {"incident-1": "yes"}), ("silence", {"incident-2": "yes", "for": "99y"})):
        assert (await post_form(service, f"/incidents/{path}", None, **given))[0] == 409, path


async def test_a_key_for_some_jobs_acknowledges_several_of_these_alone() -> None:
    service = await with_incidents()
    await fail(service.stored_incidents, PRICES)
    browser = await signed_in(service, Scope.RUN, jobs=("prices",))
    both = {"incident-2": "yes", "incident-3": "yes"}
    assert (await post_form(service, "/incidents/acknowledge", browser, **both))[0] == 303
    assert [(await service.incidents.get(number)).acked_by for number in (2, 3)] == ["", "anna"]
    assert (await post_form(service, "/incidents/silence", browser, **{"incident-2": "yes", "for": "1h"}))[0] == 409
    assert (await post_form(service, "/incidents/acknowledge", {**browser, "Origin": "http://evil"}, **both))[0] == 403


async def test_a_job_is_silent_for_as_long_as_somebody_says() -> None:
    service = await with_incidents()
    silence_at = "/jobs/backup/silence"
    for fields, for_ms in (({"for": "1h"}, 3_600_000), ({"value": "1w", "for": "1h"}, 604_800_000)):
        assert (await post_form(service, silence_at, None, by="anna", **fields))[0] == 303
        silence = await service.incidents.silence_of(BACKUP)
        assert silence is not None
        assert (silence.until_ms, silence.by) == (NOW_MS + for_ms, "anna")
    assert (await post_form(service, silence_at, value="99y"))[0] == 409
    assert (await post_form(service, "/jobs/nothing/silence", value="1h"))[0] == 404
    page = await page_of("/jobs/backup", service)
    assert "Silenced until" in page
    assert 'href="/incidents/2">Incident 2</a> is open' in page
    assert (await post_form(service, "/jobs/backup/unsilence"))[0] == 303
    assert await service.incidents.silence_of(BACKUP) is None


async def test_a_job_that_spyweb_has_paused_can_be_resumed() -> None:
    rows = [replace(row, job=replace(row.job, paused_for="5 failures in a row")) for row in three_rows()]
    service = make_dashboard_service(rows)
    backup = service.live.get(BACKUP)
    backup.cursor = replace(backup.cursor, paused_for="5 failures in a row")
    await fail(service.stored_incidents, BACKUP)
    page = await page_of("/incidents/1", service)
    assert "spyweb has paused the job: 5 failures in a row" in page
    assert 'formaction="/jobs/backup/resume"' in page
    assert "spyweb has paused it: 5 failures in a row. " in await page_of("/jobs/backup", service)


async def test_whoever_may_see_some_jobs_sees_the_incidents_of_those_and_no_other_name() -> None:
    service = await with_incidents()
    await service.stored_incidents.note(
        [SubjectEvent(subject="channel:phone", event=SignSeen("down", "x"), policy=AlertPolicy(), at_ms=0)]
    )
    await fail(service.stored_incidents, PRICES)
    waits = SubjectNow(policy=AlertPolicy(to=("phone",), depends_on=("job:prices",)))
    watcher = Now(waits, AlertChannelNow(name="phone"))
    service.incidents = IncidentService(service.stored_incidents, service.clock, watcher)
    async with dashboard(service) as client:
        assert "waits for job prices" in (await get_page(client, "/incidents/2"))[1]
        limited = await signed_in(service, Scope.RUN, jobs=("backup",))
        for path in ("/incidents", "/incidents/2", "/jobs/backup", "/"):
            status, page = await get_page(client, path, **limited)
            assert (status, "prices" in page, "phone: down" in page) == (200, False, False), path
            assert '<b id="count-incidents">1</b>' in page, path
        _, page = await get_page(client, "/incidents", **limited)
        assert ids(page) == ["2"]
        assert 'href="/channels"' not in page
        assert "waits for another job" in page
        for path in ("incidents", "when", "outbox", "runs", "records", "events"):
            assert (await get_page(client, f"/{path}?job=prices", **limited))[0] == 404
        for number in (1, 3, 4):
            assert (await get_page(client, f"/incidents/{number}", **limited))[0] == 404
        assert (await post_form(service, "/incidents/4/acknowledge", limited, by="x"))[0] == 404
        async with client.get("/api/incidents", headers=limited) as answer:
            assert "prices" not in await answer.text()
        async with client.get("/api/incidents/2", headers=limited) as answer:
            assert "waits for another job" in await answer.text()


async def test_a_session_takes_care_under_the_name_of_its_key() -> None:
    service = await with_incidents()
    runs = await signed_in(service, Scope.RUN)
    assert 'name="by"' not in await page_of("/incidents/2", service, runs)
    await post_form(service, "/incidents/2/acknowledge", runs, by="boss")
    assert (await service.incidents.get(2)).acked_by == "anna"


async def test_a_channel_is_called_notified_once_its_message_is_delivered() -> None:
    service = make_dashboard_service()
    policy = AlertPolicy(after_failures=1, to=("phone",), remind_ms=None)
    subjects = dict.fromkeys(("job:backup", "job:prices"), SubjectNow(policy=policy))
    await service.stored_incidents.note(
        [SubjectEvent(subject=job, event=Failed("no disk"), policy=policy, at_ms=NOW_MS) for job in subjects]
    )
    service.clock.advance(10)  # type: ignore[attr-defined]
    await service.stored_incidents.plan([AlertChannelNow(name="phone")], subjects)
    assert "not delivered to phone yet" in await page_of("/incidents", service)
    outbox = service.store.outbox
    _, message = await outbox.unsent(None, 5)
    await outbox.put_off(message.id, next_ms=NOW_MS, error="refused: <b>", holds=True)
    for page in ("/incidents", "/incidents/1", "/incidents/2"):  # the second message waits behind the first
        assert "yet: refused: &lt;b&gt;" in await page_of(page, service)
    await outbox.give_up(message.id, error="404")
    assert "not delivered to phone: given up: 404" in await page_of("/incidents", service)
    await outbox.done(message.id)
    assert " · delivered to phone" in await page_of("/incidents", service)
    assert (await service.incidents.get(1)).job_id == JobId("backup")


async def down(service: FakeDaemonService) -> None:
    seen = SubjectEvent(subject="channel:ops", event=SignSeen("down", MARKUP), policy=AlertPolicy(), at_ms=NOW_MS)
    await service.stored_incidents.note([seen])


async def test_each_says_what_it_is_told_and_how_it_does() -> None:
    service = make_dashboard_service()
    service.tallies.attempted("phone", None)
    async with dashboard(service) as client:
        status, page = await get_page(client, "/channels")
        assert status == 200
        assert "2\N{NO-BREAK SPACE}notification channels</h1>" in page
        assert "webhook at <bdi>example.org</bdi>" in page
        assert "Level: critical only · never quiet · no message waiting · last delivery <time" in page
        assert "s3cret" not in page
        await down(service)
        service.tallies.attempted("ops", MARKUP)
        _, page = await get_page(client, "/channels")
    assert "1 of 2\N{NO-BREAK SPACE}channels does not deliver</h1>" in page
    assert 'href="/incidents/1">incident 1</a>' in page
    assert page.count("&lt;script&gt;") == 1


async def test_a_test_is_sent_and_how_it_went_is_shown() -> None:
    async with dashboard() as client:
        for name, status in (("ops", 303), ("phone", 303), (MARKUP, 404)):
            address = f"/channels/{quote(name, safe='')}/test"
            async with client.post(
                URL(address, encoded=True), data={"back": "/channels"}, headers=POST, allow_redirects=False
            ) as answer:
                assert answer.status == status
                assert "<script>alert" not in await answer.text()
        _, page = await get_page(client, "/channels")
    assert "Test notification delivered <time" in page
    assert "Test notification failed <time" in page
    assert "<code>answered 401</code>" in page


VIEW = replace(
    KNOWN,
    id=42,
    subject="job:backup",
    job_id=JobId("backup"),
    level="critical",
    text="no space",
    since_ms=1_000,
    opened_ms=5_000,
    signs={"failing": SignView(since_ms=1_000, text="still no space")},
    failures=7,
    notes=[IncidentNote(at_ms=6_000, text="silenced by anna")],
)
OVER = replace(VIEW, closed_ms=61_000, signs={}, failures=0)


def channel(name: str, told: str = "", from_ms: int = 5_000, held: str = "") -> IncidentChannel:
    return IncidentChannel(name=name, told=told, from_ms=from_ms, held=held)


def brief(number: int, subject: str, since_ms: int = 0, acked_ms: int | None = None) -> OpenIncident:
    return OpenIncident(
        id=number,
        subject=subject,
        level=Level.WARNING,
        reason="failing",
        since_ms=since_ms,
        acked_ms=acked_ms,
        acked_by="",
    )


@pytest.mark.parametrize(
    ("subject", "name"),
    [("job:backup", "Nightly"), ("channel:phone", "Channel phone"), ("daemon:disk", "spyweb's disk"), ("else", "else")],
)
def test_a_subject_has_the_name_that_people_use(subject: str, name: str) -> None:
    assert words.subject_name(subject, "Nightly") == name


def test_what_is_wrong_is_said_with_how_often() -> None:
    shown = words.show_incident(VIEW, "Nightly")
    assert (shown.name, shown.mark, shown.tone, shown.lasted_ms) == ("Nightly", "bad", "bad", None)
    assert shown.wrong == "failing, 7\N{NO-BREAK SPACE}runs in a row"
    both = {**VIEW.signs, "drift": SignView(since_ms=2_000, text="")}
    assert words.show_incident(replace(VIEW, signs=both, failures=1), "").wrong == "failing, has drifted"
    assert (words.sign_words("late"), words.sign_words("unheard-of")) == ("late", "unheard-of")


def test_the_newest_reason_is_told_and_several_one_by_one() -> None:
    assert words.reason_of(VIEW) == "still no space"
    assert words.reason_of(OVER) == "no space"
    assert words.reason_of(replace(VIEW, signs={**VIEW.signs, "drift": SignView(since_ms=1, text="x")})) == ""


def test_each_channel_says_what_it_knows_and_what_holds_it() -> None:
    channels = [
        channel("ops", told="open"),
        channel("phone", held="quiet until 07:00"),
        channel("mail"),
        channel("boss", from_ms=1_805_000),
    ]
    view = replace(VIEW, channels=channels, told={"ops": "open", "gone": "spared"})
    found = [(each.name, each.words, each.from_ms) for each in words.tellings_of(view, now_ms=10_000)]
    assert found == [
        ("ops", "delivered", None),
        ("phone", "not notified yet:", None),
        ("mail", "being notified", None),
        ("boss", "notified unless acknowledged before", 1_805_000),
        ("gone", "not notified: closed before", None),
    ]
    assert [each.held for each in words.tellings_of(view, now_ms=10_000)] == ["", "quiet", "", "", ""]
    held = replace(VIEW, channels=[channel("ops", told="open", held="silenced until 03:00")], told={"ops": "open"})
    assert [(each.words, each.held) for each in words.tellings_of(held, now_ms=10_000)] == [
        ("delivered; now", "silenced")
    ]
    acked = words.tellings_of(replace(VIEW, channels=[channel("phone")], acked_ms=7), now_ms=10_000)
    assert [each.words for each in acked] == ["not notified: acknowledged"]
    ended = replace(OVER, channels=[channel("phone"), channel("ops", told="closed")], told={"ops": "closed"})
    over = words.tellings_of(ended, now_ms=10_000)
    assert [each.words for each in over] == ["not notified of the end yet", "end delivered"]


def test_the_open_ones_are_one_line_with_the_oldest_first() -> None:
    assert words.open_line([], str) is None
    found = words.open_line(
        [brief(n, f"job:j{n}", since_ms=100 - n, acked_ms=1 if n == 2 else None) for n in range(5)], str.upper
    )
    assert found is not None
    assert (found.count, found.oldest.id, found.unnamed, found.left_alone) == (5, 4, 2, 4)
    assert [name for _, name in found.named] == ["JOB:J4", "JOB:J3", "JOB:J2"]
    assert words.left_alone([brief(1, "job:x", acked_ms=1)]) == 0


def test_the_history_has_a_beginning_and_an_end() -> None:
    assert [(note.at_ms, note.text) for note in words.history_of(OVER)] == [
        (1_000, "first failure"),
        (5_000, "opened: failing"),
        (6_000, "silenced by anna"),
        (61_000, "closed"),
    ]
    assert [note.at_ms for note in words.history_of(replace(VIEW, since_ms=5_000))] == [5_000, 6_000]
