"""What a script gets of `notify{…}`, and what is in the outbox by then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.errors import OpError, StoreError
from spyweb.incidents.policy import Level
from spyweb.ops.world import Call
from spyweb.store.model.incidents import AlertChannelNow
from tests.fakes.clock import FakeClock
from tests.fakes.ops import FakeChannels, ask, make_call, make_world, table

LEVELS = 'field \'level\': "info", "warning" or "critical" expected, got '


def call_with(channels: FakeChannels | None = None, clock: FakeClock | None = None, *, is_dry: bool = False) -> Call:
    world = replace(make_world(clock=clock), channels=channels or FakeChannels())
    return make_call(world, is_dry=is_dry, is_recorded=True)


async def notify(call: Call, **fields: object) -> Sequence[object]:
    return await ask(call, "notify", table(**{"channel": b"phone", "title": b"x"} | fields))


async def items(call: Call) -> list[dict[str, Any]]:
    waiting = await call.world.store.outbox.unsent(None, 100)
    return [item for each in reversed(waiting) for item in msgspec.json.decode(each.payload)["items"]]


async def test_what_is_told_is_in_the_outbox_before_the_script_goes_on() -> None:
    call = call_with()
    given = table(channel=b"phone", title=b"disk", body=b"12 GB left", level=b"warning")
    assert await ask(call, "notify", given) == [True, "queued"]
    (item,) = await items(call)
    assert (item["title"], item["text"], item["level"], item["run"]) == ("disk", "12 GB left", "warning", 1)


async def test_a_request_to_the_server_is_no_run_that_people_could_look_for() -> None:
    call = structs.replace(call_with(), is_recorded=False)
    await notify(call, title=b"disk")
    assert [item["run"] for item in await items(call)] == [None]


async def test_a_channel_that_is_not_there_gives_nil_and_the_nearest_name() -> None:
    call = call_with()
    assert await notify(call, channel=b"phne") == [
        None,
        'there is no notification channel "phne"; did you mean "phone"?',
    ]
    assert await notify(call_with(FakeChannels({}))) == [None, 'there is no notification channel "phone"']
    assert await items(call) == []


async def test_what_is_below_the_level_of_its_channel_is_not_sent_and_uses_up_no_key() -> None:
    channels = FakeChannels({"phone": AlertChannelNow(name="phone", level=Level.WARNING)})
    call = call_with(channels)
    assert await notify(call, key=b"k") == [True, "below"]
    assert await items(call) == []
    assert await notify(call, key=b"k", level=b"warning") == [True, "queued"]


async def test_a_key_is_told_again_on_another_day() -> None:
    channels = FakeChannels()
    call = call_with(channels)
    keyed = table(channel=b"phone", title=b"x", key=b"k")
    assert [await ask(call, "notify", keyed) for _ in range(2)] == [[True, "queued"], [True, "repeated"]]
    channels.today = "2026-11-24"
    assert await ask(call, "notify", keyed) == [True, "queued"]


async def test_quiet_hours_hold_all_but_what_is_critical() -> None:
    clock = FakeClock()
    quiet = AlertChannelNow(name="phone", quiet_until_ms=clock.now_ms() + 3_600_000)
    call = call_with(FakeChannels({"phone": quiet}), clock)
    assert await notify(call, level=b"warning") == [True, "held"]
    assert await notify(call, level=b"critical") == [True, "queued"]


async def test_a_store_that_refuses_gives_nil_and_why() -> None:
    call = call_with()
    call.world.store.outbox.notify = refuse  # type: ignore[method-assign,assignment]
    assert await notify(call) == [None, "not stored: disk full"]


async def refuse(_notice: object) -> None:
    raise StoreError("disk full")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "field 'channel': string expected, got nil"),
        (table(channel=b"phone"), "field 'title': string expected, got nil"),
        (table(channel={}, title=b"x"), "field 'channel': string expected, got table"),
        (table(channel=b"phone", title=True), "field 'title': string expected, got boolean"),
        (table(channel=b"phone", title=b" \n"), "field 'title': it is blank"),
        (table(channel=b"phone", title=b"x", body={}), "field 'body': string expected, got table"),
        (table(channel=b"phone", title=b"x", key=True), "field 'key': string expected, got boolean"),
        (table(channel=b"phone", title=b"x", key=b"k" * 201), "field 'key': at most 200 bytes expected, got 201"),
        (table(channel=b"phone", title=b"x", level=b"urgent"), f'{LEVELS}"urgent"'),
        (table(channel=b"phone", title=b"x", level=3), f"{LEVELS}number"),
        (table(chanel=b"phone", title=b"x"), "no field 'chanel'; did you mean \"channel\"?"),
        ({1: b"phone", 2: b"x"}, "no field '1'"),
    ],
)
async def test_a_wrong_field_raises_one_line(given: dict[object, object], reason: str) -> None:
    with pytest.raises(OpError) as raised:
        await ask(call_with(), "notify", given)
    assert str(raised.value) == f"bad argument #1 to 'notify' ({reason})"


async def test_texts_are_cut_to_a_length_and_a_title_to_one_line() -> None:
    call = call_with()
    title, body = "ä\r\nBcc: x\0" + "é" * 300, "💥" * 5_000
    assert await notify(call, title=title.encode(), body=body.encode()) == [True, "queued"]
    (item,) = await items(call)
    assert item["title"].startswith("ä Bcc: xé")
    assert (len(item["title"]), len(item["text"])) == (199, 4_000)
    assert await notify(call, title=b"\xff", body=b"\xff" * 9) == [True, "queued"]


async def test_a_dry_run_tells_nobody() -> None:
    call = call_with(is_dry=True)
    with pytest.raises(OpError, match="not in a dry run: notify"):
        await notify(call)
    assert await items(call) == []
