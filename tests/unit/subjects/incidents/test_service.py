"""Incidents as clients are told of them, what keeps messages back, and channels without their secrets."""

from __future__ import annotations

import asyncio
from datetime import time
from zoneinfo import ZoneInfo

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from spyweb.incidents.policy import AlertPolicy, Escalation, Level, QuietHours
from spyweb.incidents.telling import Hold, HoldReason
from spyweb.incidents.truth import SignSeen
from spyweb.model import JobId
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.incidents import AlertChannelNow, SubjectEvent, SubjectNow
from spyweb.store.model.messages import Channel, NewMessage, Target
from spyweb.store.sqlite.incidents import Incidents
from spyweb.subjects.incidents.service import IncidentService, in_words
from spyweb.subjects.incidents.views import IncidentChannel, IncidentView, SignView
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.incidents import AT_MS, KNOWN, Now, fail, succeed
from tests.fakes.memory_store import MemoryStore

HOUR_MS = 3_600_000
POLICY = AlertPolicy(to=("phone",))


@pytest.fixture
async def incidents() -> Incidents:
    """One of prices, which is over, and one of backup, which is open."""
    found = MemoryStore(FakeClock()).incidents
    await fail(found, "prices")
    await succeed(found, "prices")
    await fail(found, "backup", "no route")
    return found


async def test_one_is_shown_with_all_that_is_known(incidents: Incidents) -> None:
    assert await IncidentService(incidents, FakeClock()).get(2) == replace(
        KNOWN,
        id=2,
        subject="job:backup",
        job_id=JobId("backup"),
        text="no route",
        run=(await incidents.list())[0].run,
        since_ms=AT_MS,
        opened_ms=AT_MS,
        signs={"failing": SignView(since_ms=AT_MS, text="no route")},
    )


async def test_whoever_takes_care_is_noted_and_the_planner_looks_again(incidents: Incidents) -> None:
    watcher = Now(SubjectNow(policy=POLICY))
    service = IncidentService(incidents, FakeClock(), watcher)
    await service.acknowledge(2, "me")
    found = await service.get(2)
    assert (found.acked_by, found.acked_ms, [note.text for note in found.notes]) == (
        "me",
        START_MS,
        ["acknowledged by me"],
    )
    assert watcher.wakes == 1


async def test_what_is_over_has_no_signs_and_silence_is_said_while_it_lasts(incidents: Incidents) -> None:
    clock = FakeClock()
    service = IncidentService(incidents, clock)
    over = await service.get(1)
    assert (over.signs, over.failures) == ({}, 0)
    await service.silence(JobId("backup"), 60_000, "me")
    silent = await service.get(2)
    assert (silent.silent_until_ms, silent.silent_by) == (START_MS + 60_000, "me")
    clock.advance(60)
    loud = await service.get(2)
    assert (loud.silent_until_ms, loud.silent_by) == (None, "")


PHONE, BOSS = AlertChannelNow(name="phone"), AlertChannelNow(name="boss")


async def standing(store: MemoryStore, subject: SubjectNow, *channels: AlertChannelNow) -> IncidentView:
    """Return how the newest incident stands."""
    service = IncidentService(store.incidents, FakeClock(), Now(subject, *channels or (PHONE,)))
    return (await service.list(is_open=None, job=None, before=None, limit=1))[0]


@pytest.fixture
async def store() -> MemoryStore:
    """One incident of prices, which is open."""
    store = MemoryStore(FakeClock())
    await fail(store.incidents)
    return store


async def test_who_is_told_is_as_the_settings_say_now(store: MemoryStore) -> None:
    policy = AlertPolicy(to=("phone", "gone"), escalations=(Escalation(30 * 60_000, ("boss",)),))
    ops = AlertChannelNow(name="ops")
    critical = AlertChannelNow(name="pager", level=Level.CRITICAL)
    found = await standing(store, SubjectNow(policy=policy), PHONE, ops, BOSS, critical)
    assert (found.held, found.channels) == (
        "",
        [
            IncidentChannel(name="phone", told="", from_ms=AT_MS, held=""),
            IncidentChannel(name="boss", told="", from_ms=AT_MS + 30 * 60_000, held=""),
        ],
    )


async def test_maintenance_holds_all(store: MemoryStore) -> None:
    found = await standing(store, SubjectNow(policy=POLICY, maintenance_until_ms=AT_MS + 3 * HOUR_MS))
    assert found.held == "maintenance until 03:00"
    assert [each.held for each in found.channels] == ["maintenance until 03:00"]
    assert (found.held_until_ms, found.channels[0].held_until_ms) == (AT_MS + 3 * HOUR_MS,) * 2


async def test_silence_holds_all_while_it_lasts(store: MemoryStore) -> None:
    await store.incidents.silence("job:prices", 2 * HOUR_MS, "me")
    assert (await standing(store, SubjectNow(policy=POLICY))).held == "silenced until 02:00"
    await store.incidents.silence("job:prices", None, "me")
    assert (await standing(store, SubjectNow(policy=POLICY))).held == ""


async def test_an_open_incident_of_what_it_depends_on_holds_all(store: MemoryStore) -> None:
    await fail(store.incidents, "internet")
    policy = AlertPolicy(to=("phone",), depends_on=("job:internet", "job:power"))
    await succeed(store.incidents, "prices")
    await fail(store.incidents, "prices")
    assert (await standing(store, SubjectNow(policy=policy))).held == "waits for job internet"


async def test_quiet_hours_hold_the_channels_that_are_in_them(store: MemoryStore) -> None:
    loud = AlertChannelNow(name="boss", has_own_quiet=True)
    quiet = SubjectNow(policy=AlertPolicy(to=("phone", "boss")), quiet_until_ms=AT_MS + 7 * HOUR_MS)
    found = await standing(store, quiet, PHONE, loud)
    assert [each.held for each in found.channels] == ["quiet until 07:00", ""]
    assert found.held == "", "somebody is told"
    assert (await standing(store, quiet, PHONE)).held == "quiet until 07:00"


async def test_one_who_is_only_told_later_does_not_count(store: MemoryStore) -> None:
    escalation = Escalation(30 * 60_000, ("boss",))
    policy = AlertPolicy(to=("phone",), escalations=(escalation,), quiet=QuietHours(time(22), time(7), "UTC"))
    loud = AlertChannelNow(name="boss", has_own_quiet=True)
    found = await standing(store, SubjectNow(policy=policy, quiet_until_ms=AT_MS + 7 * HOUR_MS), PHONE, loud)
    assert found.held == "quiet until 07:00"


async def test_what_is_over_is_held_by_nothing(store: MemoryStore) -> None:
    await succeed(store.incidents)
    found = await standing(store, SubjectNow(policy=POLICY, maintenance_until_ms=AT_MS + HOUR_MS))
    assert (found.held, [each.held for each in found.channels]) == ("", [""])


@pytest.mark.parametrize(
    ("hold", "words"),
    [
        (Hold(HoldReason.QUIET, START_MS + 7 * HOUR_MS, spares=False), "quiet until 08:00"),
        (Hold(HoldReason.MAINTENANCE, START_MS + 24 * HOUR_MS, spares=False), "maintenance until 2026-01-02 01:00"),
        (Hold(HoldReason.ANOTHER, None, spares=True), "waits for job internet and channel:ops"),
    ],
)
def test_it_is_said_in_words_with_the_day_where_that_is_not_plain(hold: Hold, words: str) -> None:
    failing = ["job:internet", "channel:ops"]
    assert in_words(hold, failing, ZoneInfo("Europe/Berlin"), START_MS) == words


async def test_very_many_are_looked_at_in_slices(store: MemoryStore) -> None:
    class CountingClock(FakeClock):
        """A millisecond passes at each look."""

        looks = 0
        rests = 0

        def monotonic(self) -> float:
            self.looks += 1
            return self.looks / 1000

        async def sleep(self, seconds: float) -> None:
            self.rests += 1

    (incident,) = await store.incidents.list()
    clock = CountingClock()
    store.incidents.list = lambda **_: asyncio.sleep(0, [incident] * 100)  # type: ignore[assignment]
    service = IncidentService(store.incidents, clock, Now(SubjectNow(policy=POLICY), PHONE))
    found = await service.list(is_open=None, job=None, before=None, limit=100)
    assert (len(found), found[0].channels[0].name) == (100, "phone")
    assert clock.rests > 10


QUIET = QuietHours(time(22), time(7), "UTC")


async def test_how_the_last_test_went_is_kept_in_mind() -> None:
    clock = FakeClock()
    service = FakeDaemonService(clock=clock).channels
    await service.try_out("phone")
    clock.advance(1)
    tried = await service.try_out("phone")
    found = {each.name: (each.tested_ms, each.test) for each in await service.list()}
    assert found == {"ops": (None, None), "phone": (START_MS + 1_000, tried)}


async def test_each_is_shown_with_what_waits_and_since_when_it_takes_nothing() -> None:
    clock = FakeClock()
    service = FakeDaemonService(clock=clock)
    store = service.store
    waiting = NewMessage(job=JobId("backup"), target=Target(Channel.ALERT, "ops"), payload=b"{}")
    await store.outbox.add([waiting, waiting])
    service.tallies.attempted("ops", None)
    clock.advance(10)
    service.tallies.attempted("ops", "answered 500")
    event = SubjectEvent(
        subject="channel:ops", event=SignSeen("down", "answered 500"), policy=AlertPolicy(), at_ms=clock.now_ms()
    )
    await store.incidents.note([event])
    ops, phone = await service.channels.list()
    assert (ops.name, ops.kind, ops.service, ops.host, ops.level) == ("ops", "webhook", "", "example.org", "info")
    assert (ops.waiting, ops.oldest_ms, ops.sent, ops.failed, ops.sent_ms) == (2, START_MS, 1, 1, START_MS)
    assert (ops.error, ops.failed_ms) == ("answered 500", START_MS + 10_000)
    assert (ops.down_since_ms, ops.incident) == (START_MS + 10_000, 1)
    assert (phone.name, phone.kind, phone.service, phone.host) == ("phone", "service", "ntfy", "")
    assert (phone.level, phone.waiting, phone.failed, phone.down_since_ms) == ("critical", 0, 0, None)
    assert b"s3cret" not in encode(await service.channels.list())


async def test_what_is_wrong_with_the_settings_of_a_channel_is_shown_with_it() -> None:
    clock = FakeClock()
    service = FakeDaemonService(clock=clock)
    signs = {"channel:ops": SignSeen("template", "title: no"), "channel:phone": SignSeen("address", "url: no service")}
    events = [
        SubjectEvent(subject=subject, event=sign, policy=AlertPolicy(), at_ms=clock.now_ms())
        for subject, sign in signs.items()
    ]
    await service.store.incidents.note(events)
    found = {each.name: (each.unusable, each.template_problem) for each in await service.channels.list()}
    assert found == {"ops": ("", "title: no"), "phone": ("url: no service", "")}


async def test_after_a_restart_the_error_is_that_of_the_message_that_waits_longest() -> None:
    service = FakeDaemonService()
    waiting = NewMessage(job=JobId("backup"), target=Target(Channel.ALERT, "ops"), payload=b"{}")
    (number,) = await service.store.outbox.add([waiting])
    await service.store.outbox.put_off(number, next_ms=0, error="answered 503", holds=True)
    (ops, _) = await service.channels.list()
    assert (ops.error, ops.failed_ms, ops.failed) == ("answered 503", None, 0)


async def test_quiet_hours_are_its_own_or_those_of_alerts() -> None:
    service = FakeDaemonService()
    channels = service.alert_settings.channels
    service.alert_settings = AlertSettings(channels=channels, policy=AlertPolicy(quiet=QUIET))
    assert [each.quiet for each in await service.channels.list()] == ["22:00-07:00", "22:00-07:00"]
    assert (await service.channels.list())[0].quiet_until_ms == START_MS + 7 * 3_600_000
