"""What one notification channel is sent, by what it knows and what is true."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.incidents.policy import AlertPolicy, Escalation, Level
from spyweb.incidents.telling import (
    COLLECT_MS,
    DIGEST_EVERY_MS,
    ChannelState,
    KnownIncident,
    MessageItem,
    MessageKind,
    TellingPlan,
    Told,
    ToldNow,
    plan,
)

PHONE = ChannelState(name="phone")
POLICY = AlertPolicy(to=("phone",), remind_ms=60_000)
NEW = KnownIncident(id=1, opened_ms=1_000, policy=POLICY, level=Level.WARNING)
KNOWN = replace(NEW, told=Told.OPEN, remind_ms=100_000)
LATER = 1_000 + COLLECT_MS


def sent(planned: TellingPlan) -> list[list[tuple[int, str]]]:
    return [[(item.incident, item.kind.value) for item in items] for items in planned.messages]


def test_an_opening_is_told_when_others_have_had_time_to_join_it() -> None:
    assert plan(PHONE, [NEW], 1_000) == TellingPlan(wake_ms=LATER)
    assert plan(PHONE, [NEW], LATER) == TellingPlan(
        messages=((MessageItem(1, MessageKind.OPENED),),),
        told=(ToldNow(1, Told.OPEN, LATER + 60_000),),
        wake_ms=LATER + 60_000,
    )


def test_what_is_due_with_the_first_goes_with_it() -> None:
    second = replace(NEW, id=2, opened_ms=5_500)
    assert sent(plan(PHONE, [NEW, second], LATER)) == [[(1, "opened")], [(2, "opened")]]


def test_an_end_is_told_to_whom_the_beginning_was_told() -> None:
    assert sent(plan(PHONE, [replace(KNOWN, closed_ms=50_000)], 60_000)) == [[(1, "closed")]]
    assert plan(PHONE, [replace(KNOWN, closed_ms=50_000, told=Told.CLOSED)], 60_000) == TellingPlan()


def test_an_end_is_not_told_where_that_is_not_wanted() -> None:
    closed = replace(KNOWN, closed_ms=50_000, policy=replace(POLICY, recovered=False))
    assert plan(PHONE, [closed], 60_000) == TellingPlan(told=(ToldNow(1, Told.CLOSED),))


def test_one_is_reminded_every_so_often_unless_somebody_has_acknowledged() -> None:
    assert plan(PHONE, [KNOWN], 99_999).wake_ms == 100_000
    reminded = plan(PHONE, [KNOWN], 100_000 + COLLECT_MS)
    assert sent(reminded) == [[(1, "reminder")]]
    assert reminded.told == (ToldNow(1, Told.OPEN, 100_000 + COLLECT_MS + 60_000),)
    assert plan(PHONE, [replace(KNOWN, is_acknowledged=True)], 200_000) == TellingPlan()
    assert sent(plan(PHONE, [replace(KNOWN, is_acknowledged=True, closed_ms=190_000)], 200_000)) == [[(1, "closed")]]


@pytest.mark.parametrize(
    ("held", "until_ms"),
    [
        ({"maintenance_until_ms": 70_000}, 70_000),
        ({"silent_until_ms": 80_000}, 80_000),
        ({"is_under_another": True}, None),
    ],
)
def test_nothing_is_told_while_it_is_held(held: dict[str, int], until_ms: int | None) -> None:
    for incident in (NEW, replace(KNOWN, closed_ms=50_000), KNOWN):
        assert plan(PHONE, [replace(incident, **held)], 60_000) == TellingPlan(wake_ms=until_ms)


def test_quiet_hours_hold_what_is_not_critical() -> None:
    quiet = replace(PHONE, quiet_until_ms=90_000)
    assert plan(quiet, [NEW], 60_000) == TellingPlan(wake_ms=90_000)
    assert sent(plan(quiet, [replace(NEW, level=Level.CRITICAL)], 60_000)) == [[(1, "opened")]]


def test_what_came_and_went_in_quiet_hours_or_maintenance_is_told_once_and_in_silence_never() -> None:
    over = replace(NEW, closed_ms=30_000)
    assert sent(plan(PHONE, [over], 60_000)) == [[(1, "was")]]
    for held in ({"silent_until_ms": 80_000}, {"is_under_another": True}):
        assert plan(PHONE, [replace(over, **held)], 60_000) == TellingPlan(told=(ToldNow(1, Told.SPARED),))


def test_others_are_told_when_nobody_has_acknowledged_in_time() -> None:
    policy = replace(POLICY, escalations=(Escalation(30_000, ("boss",)),))
    boss, incident = ChannelState(name="boss"), replace(NEW, policy=policy)
    assert plan(boss, [incident], 10_000) == TellingPlan(wake_ms=31_000)
    assert sent(plan(boss, [incident], 31_000 + COLLECT_MS)) == [[(1, "opened")]]
    assert plan(boss, [replace(incident, is_acknowledged=True)], 40_000) == TellingPlan()
    assert plan(boss, [replace(incident, closed_ms=30_999)], 40_000) == TellingPlan(told=(ToldNow(1, Told.SPARED),))


def test_a_channel_that_is_never_told_is_done_with_it_at_its_end() -> None:
    assert plan(ChannelState(name="ops"), [NEW], 60_000) == TellingPlan()
    assert plan(ChannelState(name="ops"), [replace(NEW, closed_ms=2)], 60_000).told == (ToldNow(1, Told.SPARED),)


def test_eleven_at_once_are_one_message_and_the_next_comes_a_minute_later() -> None:
    many = [replace(NEW, id=number) for number in range(11)]
    digest = plan(PHONE, many, LATER)
    assert [len(items) for items in digest.messages] == [11]
    assert digest.next_ms == LATER + DIGEST_EVERY_MS
    assert [len(items) for items in plan(PHONE, many[:10], LATER).messages] == [1] * 10

    after = replace(PHONE, next_ms=digest.next_ms, sent_lately=1)
    assert plan(after, [replace(NEW, id=20)], LATER + 10_000) == TellingPlan(wake_ms=digest.next_ms)
    assert sent(plan(after, [replace(NEW, id=20)], LATER + DIGEST_EVERY_MS)) == [[(20, "opened")]]


def test_the_messages_of_the_last_minute_count_towards_a_digest() -> None:
    two = [replace(NEW, id=number) for number in (1, 2)]
    assert sent(plan(replace(PHONE, sent_lately=8), two, LATER)) == [[(1, "opened")], [(2, "opened")]]
    assert sent(plan(replace(PHONE, sent_lately=9), two, LATER)) == [[(1, "opened"), (2, "opened")]]


def test_a_clock_that_is_set_back_holds_nothing_for_longer_than_its_own_length() -> None:
    assert sent(plan(PHONE, [replace(KNOWN, remind_ms=10_000_000)], 60_000)) == [[(1, "reminder")]]
    assert sent(plan(replace(PHONE, next_ms=10_000_000), [NEW], 60_000)) == [[(1, "opened")]]
    parent = replace(POLICY, depends_on=("job:router",))
    assert sent(plan(PHONE, [replace(NEW, opened_ms=10_000_000, policy=parent)], 60_000)) == [[(1, "opened")]]
