"""When a channel counts as one that takes no messages."""

from __future__ import annotations

from spyweb.alerts.channel_health import (
    ADDRESS,
    DOWN,
    LONGEST_REASON,
    MISSES,
    PATIENCE_MS,
    TEMPLATE,
    ChannelHealth,
)
from spyweb.incidents.truth import SignGone, SignSeen


def test_a_channel_is_down_after_three_failures_and_five_minutes() -> None:
    health = ChannelHealth()
    assert [health.judge("ops", "answered 500", PATIENCE_MS) for _ in range(MISSES)] == [
        None,
        None,
        SignSeen(DOWN, "answered 500"),
    ]
    assert health.judge("ops", "answered 500", PATIENCE_MS) is None  # it has been said


def test_failures_alone_do_not_suffice_nor_does_time() -> None:
    health = ChannelHealth()
    assert [health.judge("ops", "x", PATIENCE_MS - 1) for _ in range(10)] == [None] * 10
    assert health.judge("ops", "x", PATIENCE_MS) == SignSeen(DOWN, "x")
    assert health.judge("phone", "x", 10 * PATIENCE_MS) is None


def test_only_failures_in_a_row_count() -> None:
    health = ChannelHealth()
    for failure in ("x", "x", None, "x", "x"):
        assert health.judge("ops", failure, PATIENCE_MS) is None


def test_one_message_that_is_taken_ends_it_also_after_a_restart() -> None:
    health = ChannelHealth(["ops"])
    assert health.judge("ops", None, 0) == SignGone(DOWN)
    assert health.judge("ops", None, 0) is None


def test_each_sign_is_told_once_as_it_comes_and_as_it_goes() -> None:
    health = ChannelHealth()
    assert health.note("ops", ADDRESS, "") is None
    assert health.note("ops", ADDRESS, "no service") == SignSeen(ADDRESS, "no service")
    assert health.note("ops", ADDRESS, "no service") is None
    assert health.note("ops", TEMPLATE, "x" * 1000) == SignSeen(TEMPLATE, "x" * LONGEST_REASON)
    assert health.troubled == ["ops"]
    assert health.note("ops", ADDRESS, "") == SignGone(ADDRESS)
    assert health.judge("ops", None, 0) is None  # it was never down
    assert health.note("ops", TEMPLATE, "") == SignGone(TEMPLATE)
    assert health.troubled == []


def test_whatever_an_earlier_daemon_may_have_seen_ends_once() -> None:
    health = ChannelHealth(["ops"])
    assert health.troubled == []
    assert [health.note("ops", sign, "") for sign in (TEMPLATE, ADDRESS, ADDRESS)] == [
        SignGone(TEMPLATE),
        SignGone(ADDRESS),
        None,
    ]


def test_a_channel_that_is_gone_from_the_settings_is_down_no_more() -> None:
    health = ChannelHealth(["ops", "phone"])
    assert health.forget(["phone"]) == ["ops"]
    assert health.forget(["phone"]) == []
