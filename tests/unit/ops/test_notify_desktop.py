"""Notifications on the desktop, with a notify-send of the test's own."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.ops import notify_desktop
from spyweb.ops.notify_desktop import Desktop, linux_arguments, mac_arguments

Install = Callable[[str], Desktop]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Put a shell script where notify-send is looked for; gives a desktop that has it."""

    def write(script: str, name: str = "notify-send") -> Desktop:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return Desktop({"PATH": str(tmp_path), "WAYLAND_DISPLAY": "wayland-0"}, "linux")

    return write


@pytest.fixture
def noted(tmp_path: Path, install: Install) -> tuple[Desktop, Callable[[], list[str]]]:
    """A notify-send that writes its arguments down."""
    file = tmp_path / "arguments"
    desktop = install(f'for each in "$@"; do printf \'%s\\0\' "$each"; done > {shlex.quote(str(file))}')
    return desktop, lambda: file.read_text().split("\0")[:-1]


async def test_title_body_and_timeout_reach_the_command(noted: tuple[Desktop, Callable[[], list[str]]]) -> None:
    desktop, arguments = noted
    assert await desktop.show("3 new items", "Tea\nCup", 9000) is None

    assert arguments() == ["--app-name=spyweb", "--expire-time=9000", "--", "3 new items", "Tea\nCup"]


@pytest.mark.parametrize(
    ("title", "body", "shown"),
    [
        ("--help", "-u critical", ["--help", "-u critical"]),
        ("", "", ["spyweb", ""]),
        ("a\0b", "\ud800", ["ab", "?"]),
        ("$(id) `id` 'x' \"y\"", ";rm -rf /", ["$(id) `id` 'x' \"y\"", ";rm -rf /"]),
        ("<b>", "<a href='x'>&amp;</a>", ["<b>", "&lt;a href='x'&gt;&amp;amp;&lt;/a&gt;"]),
        ("\\n", "C:\\new\\", ["\\n", "C:\\\\new\\\\"]),
        ("x" * 5000, "y" * 100_000, ["x" * 199 + "…", "y" * 3999 + "…"]),
    ],
)
async def test_whatever_a_page_says_is_text(
    noted: tuple[Desktop, Callable[[], list[str]]], title: str, body: str, shown: list[str]
) -> None:
    desktop, arguments = noted
    assert await desktop.show(title, body) is None

    assert arguments()[3:] == shown


@pytest.mark.parametrize(("asked", "given"), [(None, 5000), (-1, 0), (0, 0), (10**30, 86_400_000)])
async def test_times_are_held_within_bounds(
    noted: tuple[Desktop, Callable[[], list[str]]], asked: int | None, given: int
) -> None:
    desktop, arguments = noted
    await desktop.show("t", "b", asked)

    assert arguments()[1] == f"--expire-time={given}"


async def test_without_a_desktop_nothing_is_shown_and_the_log_says_so_once(tmp_path: Path) -> None:
    desktop = Desktop({"PATH": os.environ["PATH"]}, "linux")
    with capture_logs() as lines:
        assert await desktop.show("t", "b") is None
        assert await desktop.show("t", "b") is None

    (line,) = lines
    assert line["log_level"] == "warning"
    assert "there is no desktop here" in line["reason"]


async def test_without_the_command_the_log_says_what_is_missing(tmp_path: Path) -> None:
    with capture_logs() as lines:
        await Desktop({"PATH": str(tmp_path), "DISPLAY": ":0"}, "linux").show("t", "b")
        await Desktop({"PATH": str(tmp_path)}, "darwin").show("t", "b")

    assert [line["reason"] for line in lines] == [
        "there is no notify-send on the PATH",
        "there is no osascript on the PATH",
    ]


async def test_a_command_that_fails_tells_why(install: Install) -> None:
    desktop = install("echo 'no server' >&2; exit 3")
    reason = await desktop.show("t", "b")

    assert reason is not None
    assert reason.endswith("notify-send failed (3): no server")


async def test_a_command_that_hangs_is_ended(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_desktop, "PATIENCE", 0.05)
    reason = await install("exec /bin/sleep 20").show("t", "b")

    assert reason is not None
    assert "has not ended within" in reason


async def test_a_command_that_can_not_be_run_tells_why(tmp_path: Path, install: Install) -> None:
    desktop = install("true")
    await desktop.show("t", "b")
    (tmp_path / "notify-send").unlink()
    reason = await desktop.show("t", "b")

    assert reason is not None
    assert "No such file" in reason


async def test_a_flood_is_shown_few_at_a_time(tmp_path: Path, install: Install) -> None:
    log = tmp_path / "log"
    desktop = install(f"echo + >> {log}; /bin/sleep 0.02; echo - >> {log}")
    await asyncio.gather(*(desktop.show("t", "b") for _ in range(12)))
    running, most = 0, 0
    for line in log.read_text().splitlines():
        running += 1 if line == "+" else -1
        most = max(most, running)

    assert (running, most <= notify_desktop.AT_ONCE) == (0, True)


def test_on_a_mac_the_texts_are_arguments_of_a_fixed_script() -> None:
    *script, separator, title, body = mac_arguments('-e "x"', "end run", 1)

    assert (separator, title, body) == ("--", '-e "x"', "end run")
    assert script == [*mac_arguments("", "", 0)[:-3]]
    assert linux_arguments("t", "b", 1)[2] == "--"
