"""Channels are listed without their secrets, and tried out."""

from __future__ import annotations

from datetime import time

from msgspec.json import encode

from spyweb.incidents.policy import AlertPolicy, QuietHours
from spyweb.incidents.truth import SignSeen
from spyweb.model import JobId
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.messages import Channel, NewMessage, Target
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.daemon_service import FakeDaemonService

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
