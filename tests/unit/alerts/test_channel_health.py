"""When a channel counts as one that takes no messages."""

from __future__ import annotations

from spyweb.alerts.channel_health import DOWN, MISSES, PATIENCE_MS, ChannelHealth
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


def test_a_channel_that_is_gone_from_the_settings_is_down_no_more() -> None:
    health = ChannelHealth(["ops", "phone"])
    assert health.forget(["phone"]) == ["ops"]
    assert health.forget(["phone"]) == []
