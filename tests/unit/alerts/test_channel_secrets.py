"""Addresses and secrets of channels, in files and in the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.settings.alerts import AlertChannelSettings
from spyweb.settings.secret_places import LONGEST_SECRET

PHONE = AlertChannelSettings(name="phone", url_file="secrets/phone")
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/", secret_file="secrets/phone")


def addresses(root: Path, content: bytes | None = None, **environ: str) -> ChannelSecrets:
    (root / "secrets").mkdir(exist_ok=True)
    if content is not None:
        (root / "secrets/phone").write_bytes(content)
    return ChannelSecrets(root, environ)


def test_an_address_stands_in_the_settings_or_in_a_file_of_one_line(tmp_path: Path) -> None:
    found = addresses(tmp_path, b"\n  ntfy://topic \r\n")
    assert found.url(PHONE) == "ntfy://topic"
    assert found.url(AlertChannelSettings(name="x", url="ntfy://other")) == "ntfy://other"


def test_a_file_may_be_anywhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("ntfy://topic")
    elsewhere = AlertChannelSettings(name="x", url_file=str(tmp_path / "elsewhere"))
    assert addresses(tmp_path).url(elsewhere) == "ntfy://topic"


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    assert addresses(tmp_path, b"one").secret(OPS) == b"one"
    assert addresses(tmp_path, b"two\n").secret(OPS) == b"two"


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
    with pytest.raises(ValueError, match="the secret env:HOOK is not there"):
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
