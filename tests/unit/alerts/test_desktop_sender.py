"""Messages on the desktop."""

from __future__ import annotations

import os
from pathlib import Path

from spyweb.alerts.delivery import Attempt, decode_facts
from spyweb.alerts.desktop_sender import DesktopSender
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.send import DeliveryFailure
from spyweb.settings.alerts import AlertChannelSettings
from tests.fakes.alerts import PAYLOAD, QUEUED, PlainWriter

ME = AlertChannelSettings(name="me", desktop=True)


async def shown(root: Path, script: str) -> Attempt:
    program = root / "notify-send"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    desktop = Desktop({"PATH": str(root), "DISPLAY": ":0"}, "linux")
    return await DesktopSender(desktop, PlainWriter()).send(ME, decode_facts(PAYLOAD), QUEUED)


async def test_title_and_body_are_shown_until_somebody_closes_them(tmp_path: Path) -> None:
    file = tmp_path / "shown"
    assert await shown(tmp_path, f'for each in "$@"; do echo "$each"; done > {file}') == Attempt()
    lines = file.read_text().splitlines()
    assert lines[1:5] == ["--expire-time=0", "--", "#42 backup is down: 3 failures", "no space"]


async def test_one_that_is_not_shown_has_not_arrived(tmp_path: Path) -> None:
    attempt = await shown(tmp_path, "echo nobody is there >&2; exit 1")
    assert attempt == Attempt(DeliveryFailure(reason=f"{tmp_path}/notify-send failed (1): nobody is there"))


async def test_without_a_desktop_nothing_arrives() -> None:
    attempt = await DesktopSender(Desktop({"PATH": os.environ["PATH"]}, "linux"), PlainWriter()).send(
        ME, decode_facts(PAYLOAD), QUEUED
    )
    assert attempt.failure
    assert attempt.address_problem.startswith("there is no desktop here")
