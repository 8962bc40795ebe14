"""Addresses and secrets of channels, in files and in the environment."""

from __future__ import annotations

import os
from datetime import UTC, datetime, time
from pathlib import Path

import pytest

from spyweb.alerts.channels import (
    ADDRESS,
    DOWN,
    LONGEST_REASON,
    MISSES,
    PATIENCE_MS,
    TEMPLATE,
    AttemptTallies,
    ChannelHealth,
    ChannelSecrets,
    ChannelTally,
    OpenChannels,
    ShownAddress,
    shown,
)
from spyweb.incidents.policy import AlertPolicy, Level, QuietHours
from spyweb.incidents.truth import SignGone, SignSeen
from spyweb.model import JobId
from spyweb.runs.live import LiveJobs
from spyweb.settings.addresses import LONGEST_SECRET
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.harness import harness, make_job

PHONE = AlertChannelSettings(name="phone", url_file="secrets/phone")
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/", secret_file="secrets/phone")


def addresses(root: Path, content: bytes | None = None, **environ: str) -> ChannelSecrets:
    (root / "secrets").mkdir(exist_ok=True)
    if content is not None:
        (root / "secrets/phone").write_bytes(content)
    return ChannelSecrets(root, environ)


def test_an_address_stands_in_the_settings_or_in_a_file_of_one_line_which_is_read_each_time(tmp_path: Path) -> None:
    found = addresses(tmp_path, b"\n  ntfy://topic \r\n")
    elsewhere = AlertChannelSettings(name="x", url_file=str(tmp_path / "secrets/phone"))
    assert found.url(PHONE) == found.url(elsewhere) == "ntfy://topic"
    assert found.url(AlertChannelSettings(name="x", url="ntfy://other")) == "ntfy://other"
    addresses(tmp_path, b"two\n")
    assert found.secret(OPS) == b"two"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "the file secrets/phone can't be read: No such file or directory"),
        (b" \n", "the file secrets/phone is empty"),
        (b"ntfy://hunter2\nntfy://hunter3", "the file secrets/phone: expected one line of text, and nothing else"),
        (b"\xff\xfe", "the file secrets/phone: expected one line of text, and nothing else"),
        (b"x" * (LONGEST_SECRET + 1), "the file secrets/phone: expected one line of text, and nothing else"),
        (b"hunter2", "the file secrets/phone: expected an address of a service, such as ntfy://…"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_what_is_in_it(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    with pytest.raises(ValueError, match="secrets/phone") as raised:
        addresses(tmp_path, content).url(PHONE)
    assert str(raised.value) == reason


def test_a_pipe_does_not_hold_up_the_daemon(tmp_path: Path) -> None:
    found = addresses(tmp_path)
    os.mkfifo(tmp_path / "secrets/phone")
    with pytest.raises(ValueError, match="not a regular file"):
        found.url(PHONE)


def test_a_secret_is_in_the_environment_or_in_a_file_or_there_is_none(tmp_path: Path) -> None:
    found = addresses(tmp_path, HOOK="k")
    signed = AlertChannelSettings(name="x", webhook="https://example.org/", secret="env:HOOK")
    unsigned = AlertChannelSettings(name="x", webhook="https://example.org/")
    assert (found.secret(signed), found.secret(unsigned)) == (b"k", b"")
    with pytest.raises(ValueError, match="the secret env:HOOK is missing"):
        addresses(tmp_path).secret(signed)
    with pytest.raises(ValueError, match="the file secrets/phone can't be read"):
        found.secret(OPS)


def test_variables_are_those_of_the_daemon_as_a_channel_is_used(tmp_path: Path) -> None:
    found = addresses(tmp_path, b"ntfy://topic", TOKEN="t0ken", FOLDER="secrets", HOST="example.org")
    hook = AlertChannelSettings(
        name="x", webhook="https://${HOST}/${TOKEN}", headers=(("Authorization", "Bearer ${TOKEN}"),)
    )
    assert found.webhook(hook) == "https://example.org/t0ken"
    assert found.headers(hook) == (("Authorization", "Bearer t0ken"),)
    assert found.url(AlertChannelSettings(name="x", url="ntfy://${TOKEN}")) == "ntfy://t0ken"
    assert found.url(AlertChannelSettings(name="x", url_file="${FOLDER}/phone")) == "ntfy://topic"
    assert found.missing(hook) is None


def test_a_variable_that_is_not_set_is_named_with_its_key(tmp_path: Path) -> None:
    found = addresses(tmp_path, SET="x", BLANK=" ")
    for key, channel in {
        "url": AlertChannelSettings(name="x", url="ntfy://${SET}/${NOPE}"),
        "webhook": AlertChannelSettings(name="x", webhook="https://${NOPE}/"),
        "headers": AlertChannelSettings(name="x", webhook="https://x/", headers=(("A", "${NOPE}"),)),
        "secret_file": AlertChannelSettings(name="x", webhook="https://x/", secret_file="${NOPE}"),
    }.items():
        assert found.missing(channel) == (key, "NOPE")
    blank = AlertChannelSettings(name="x", url="ntfy://${BLANK}")
    assert found.missing(blank) == ("url", "BLANK")
    with pytest.raises(ValueError, match="the variable BLANK is not set"):
        found.url(blank)


def test_an_address_that_is_wrong_once_it_is_whole_is_not_repeated(tmp_path: Path) -> None:
    found = addresses(tmp_path, TOKEN="hunter2")
    for channel in (AlertChannelSettings(name="x", url="${TOKEN}"), AlertChannelSettings(name="x", webhook="${TOKEN}")):
        with pytest.raises(ValueError, match="expected an address") as raised:
            found.url(channel) if channel.url else found.webhook(channel)
        assert "hunter2" not in str(raised.value)


def test_a_file_that_others_may_read_is_noticed(tmp_path: Path) -> None:
    found = addresses(tmp_path, b"x")
    for mode, is_open in ((0o644, True), (0o640, False), (0o600, False)):
        (tmp_path / "secrets/phone").chmod(mode)
        assert found.is_open_to_others("secrets/phone") is is_open
    assert not found.is_open_to_others("secrets/none")


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
    ("found", "of_job", "hours"),
    [
        (channel(), None, 8.5),
        (channel(), EVENING, 0.5),
        (channel(quiet=EVENING, has_own_quiet=True), None, 0.5),
        (channel(quiet=None, has_own_quiet=True), EVENING, None),
    ],
)
async def test_a_channel_has_quiet_hours_of_its_own_or_those_of_the_job_or_of_all(
    found: AlertChannelSettings, of_job: QuietHours | None, hours: float | None
) -> None:
    async with harness() as h:
        if of_job:
            await h.settle(make_job("backup", alerts=AlertPolicy(quiet=of_job)))
        now = open_channels(found, AlertPolicy(quiet=NIGHT), h.live).find("phone", BACKUP, NOW_MS)
    assert now
    assert now.quiet_until_ms == (None if hours is None else NOW_MS + hours * HOUR_MS)


def test_names_and_levels_are_those_of_the_settings() -> None:
    channels = open_channels(channel(level=Level.WARNING), AlertPolicy())
    now = channels.find("phone", BACKUP, NOW_MS)
    assert now
    assert (list(channels.names()), now.level) == (["phone"], Level.WARNING)
    assert channels.find("ops", BACKUP, NOW_MS) is None


def test_a_day_is_one_of_the_daemon_s_time_zone() -> None:
    tokyo = OpenChannels(AlertSettings, "Asia/Tokyo", LiveJobs())
    assert [tokyo.day(NOW_MS + hours * HOUR_MS) for hours in (-8, 0)] == ["2026-11-23", "2026-11-24"]


def test_attempts_are_counted_and_the_last_reason_is_kept() -> None:
    clock = FakeClock()
    tallies = AttemptTallies(clock)
    tallies.attempted("ops", "answered 500")
    clock.advance(1)
    tallies.attempted("ops", None)
    tallies.attempted("phone", "x" * 1_000)
    assert tallies.of == {
        "ops": ChannelTally(sent=1, failed=1, sent_ms=START_MS + 1_000, failed_ms=START_MS, error="answered 500"),
        "phone": ChannelTally(failed=1, failed_ms=START_MS + 1_000, error="x" * 300),
    }


def test_a_channel_is_down_after_three_failures_and_five_minutes_and_not_after_one_of_both_alone() -> None:
    health = ChannelHealth()
    told = [health.judge("ops", "answered 500", PATIENCE_MS) for _ in range(MISSES + 1)]
    assert told == [None, None, SignSeen(DOWN, "answered 500"), None]  # then it has been said
    assert [health.judge("phone", "x", PATIENCE_MS - 1) for _ in range(10)] == [None] * 10
    assert health.judge("phone", "x", PATIENCE_MS) == SignSeen(DOWN, "x")
    assert health.judge("boss", "x", 10 * PATIENCE_MS) is None
    in_a_row = [health.judge("mail", failure, PATIENCE_MS) for failure in ("x", "x", None, "x", "x")]
    assert in_a_row == [None] * 5


def test_whatever_an_earlier_daemon_may_have_seen_ends_once() -> None:
    health = ChannelHealth()
    health.know(["ops"])
    assert health.troubled == []
    assert [health.judge("ops", None, 0) for _ in range(2)] == [SignGone(DOWN), None]
    told = [health.note("ops", sign, "") for sign in (TEMPLATE, ADDRESS, ADDRESS)]
    assert told == [SignGone(TEMPLATE), SignGone(ADDRESS), None]
    health = ChannelHealth()
    health.know(["ops", "phone"])  # and one that is gone from the settings is down no more
    assert [health.forget(["phone"]) for _ in range(2)] == [["ops"], []]


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


@pytest.mark.parametrize(
    ("url", "service", "host"),
    [
        ("ntfy://my-topic", "ntfy", ""),
        ("ntfy://my-topic/?priority=high", "ntfy", ""),
        ("ntfys://ntfy.example.org/topic", "ntfys", "ntfy.example.org"),
        ("mailtos://me:pass@smtp.example.org?to=you@example.org", "mailtos", "smtp.example.org"),
        ("MAILTO://me:pass@smtp.example.org:2525", "mailto", "smtp.example.org"),
        ("slack://TokenA/TokenB/TokenC", "slack", ""),
        ("tgram://123:token/chat", "tgram", ""),
        ("discord://id/token", "discord", ""),
        ("gotify://push.example.org/token", "gotify", "push.example.org"),
        ("https://hooks.slack.com/services/A/B/C", "https", "hooks.slack.com"),
        ("mailtos://[broken", "mailtos", ""),
        ("mailtos://me:${PASSWORD}@${HOST}?to=you@example.org", "mailtos", ""),
        ("${PHONE}", "", ""),
        ("", "", ""),  # it is in a file
    ],
)
def test_the_host_is_shown_where_it_is_a_machine(url: str, service: str, host: str) -> None:
    assert shown(AlertChannelSettings(name="x", url=url)) == ShownAddress("service", service, host)
    hook = AlertChannelSettings(name="x", webhook="https://me:secret@example.org:8443/T0KEN?key=1")
    assert shown(hook) == ShownAddress("webhook", "", "example.org")
    assert shown(AlertChannelSettings(name="x", desktop=True)) == ShownAddress("desktop", "", "")
