"""Which channels scripts may tell, and when those are quiet."""

from __future__ import annotations

from datetime import UTC, datetime, time

import pytest

from spyweb.alerts.open_channels import OpenChannels
from spyweb.incidents.policy import AlertPolicy, Level, QuietHours
from spyweb.model import JobId
from spyweb.runs.live import LiveJobs
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from tests.fakes.harness import harness, make_job

NIGHT = QuietHours(time(22), time(7), "UTC")
EVENING = QuietHours(time(18), time(23), "UTC")
NOW_MS = int(datetime(2026, 11, 23, 22, 30, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000
BACKUP = JobId("backup")


def channel(**changes: object) -> AlertChannelSettings:
    return AlertChannelSettings(name="phone", webhook="https://example.org/s3cret", **changes)  # type: ignore[arg-type]


def open_channels(found: AlertChannelSettings, policy: AlertPolicy, live: LiveJobs | None = None) -> OpenChannels:
    return OpenChannels(lambda: AlertSettings(channels={"phone": found}, policy=policy), "UTC", live or LiveJobs())


@pytest.mark.parametrize(
    ("found", "hours"),
    [
        (channel(), 8.5),
        (channel(quiet=EVENING, has_own_quiet=True), 0.5),
        (channel(quiet=None, has_own_quiet=True), None),
    ],
)
def test_a_channel_has_quiet_hours_of_its_own_or_those_of_all(found: AlertChannelSettings, hours: float | None) -> None:
    now = open_channels(found, AlertPolicy(quiet=NIGHT)).find("phone", BACKUP, NOW_MS)
    assert now
    assert now.quiet_until_ms == (None if hours is None else NOW_MS + hours * HOUR_MS)


async def test_those_of_the_job_come_before_those_of_all() -> None:
    async with harness() as h:
        await h.settle(make_job("backup", alerts=AlertPolicy(quiet=EVENING)))
        now = open_channels(channel(), AlertPolicy(quiet=NIGHT), h.live).find("phone", BACKUP, NOW_MS)
    assert now
    assert now.quiet_until_ms == NOW_MS + HOUR_MS // 2


def test_names_and_levels_are_those_of_the_settings() -> None:
    channels = open_channels(channel(level=Level.WARNING), AlertPolicy())
    now = channels.find("phone", BACKUP, NOW_MS)
    assert now
    assert (list(channels.names()), now.level) == (["phone"], Level.WARNING)
    assert channels.find("ops", BACKUP, NOW_MS) is None


def test_a_day_is_one_of_the_daemon_s_time_zone() -> None:
    tokyo = OpenChannels(AlertSettings, "Asia/Tokyo", LiveJobs())
    assert [tokyo.day(NOW_MS + hours * HOUR_MS) for hours in (-8, 0)] == ["2026-11-23", "2026-11-24"]
