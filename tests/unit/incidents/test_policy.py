"""Who is told of an incident, and how soon."""

from __future__ import annotations

from spyweb.incidents.policy import PARENT_FIRST_MS, AlertPolicy, Escalation, Level


def test_levels_have_an_order() -> None:
    assert [level.rank for level in (Level.INFO, Level.WARNING, Level.CRITICAL)] == [0, 1, 2]


def test_a_channel_is_told_at_once_after_a_while_or_never() -> None:
    policy = AlertPolicy(to=("phone",), escalations=(Escalation(60_000, ("boss",)), Escalation(90_000, ("boss",))))
    assert [policy.tells(channel) for channel in ("phone", "boss", "ops")] == [0, 60_000, None]
    assert policy.channels == {"phone", "boss"}


def test_what_it_depends_on_has_time_to_fail_first() -> None:
    policy = AlertPolicy(to=("phone",), depends_on=("job:router",), escalations=(Escalation(60_000, ("boss",)),))
    assert [policy.tells(channel) for channel in ("phone", "boss")] == [PARENT_FIRST_MS, 60_000]
