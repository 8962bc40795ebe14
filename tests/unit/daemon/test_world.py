"""What scripts see of the machine; limits on commands, of which one that can't be kept is refused; what is traced."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.clock import RealClock
from spyweb.daemon import world
from spyweb.daemon.world import (
    end_within,
    find_broken_limits,
    find_groups,
    hide_environment,
    limits_of,
    open_commands,
    open_tracer,
    visible_environment,
)
from spyweb.errors import ConfigError
from spyweb.programs.runner import CommandLimits
from spyweb.settings.sections import ExecSettings, TelemetrySettings
from tests.fakes.commands import shell


def test_what_is_not_limited_is_no_limit() -> None:
    assert limits_of(ExecSettings()) == CommandLimits(at_once=16)
    limited = ExecSettings(at_once=2, memory=1 << 30, cpu_ms=1_500, processes=9)
    assert limits_of(limited) == CommandLimits(at_once=2, memory=1 << 30, cpu_s=2, processes=9)


@pytest.mark.parametrize("user", [0, 1000])
def test_as_root_a_warning_says_what_commands_can_read(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    monkeypatch.setattr(world, "close_to_others", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with capture_logs() as said:
        hide_environment()
    assert ["can read the daemon's environment" in line["event"] for line in said] == ([True] if user == 0 else [])


def test_a_number_of_processes_needs_a_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(world, "find_delegated", lambda: None)
    assert find_groups(ExecSettings()) is None
    with pytest.raises(ConfigError, match=r"exec\.processes: needs a control group") as caught:
        find_groups(ExecSettings(processes=9))
    assert len(caught.value.problems) == 1

    monkeypatch.setattr(world, "find_delegated", lambda: tmp_path)
    monkeypatch.setattr(world, "make_groups", lambda group: group / "exec")
    assert find_groups(ExecSettings(processes=9)) == tmp_path / "exec"

    def refuse(_group: Path) -> Path:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(world, "make_groups", refuse)
    assert find_groups(ExecSettings()) is None
    with pytest.raises(ConfigError, match="Operation not permitted"):
        find_groups(ExecSettings(processes=9))


def test_a_number_of_processes_that_start_would_refuse_is_told_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limited = ExecSettings(processes=9)
    monkeypatch.setattr(world, "find_delegated", lambda: None)
    with pytest.raises(ConfigError) as refused:
        find_groups(limited)
    (told,) = find_broken_limits(limited)
    assert told == replace(refused.value.problems[0], is_warning=True)
    assert find_broken_limits(ExecSettings()) == []

    monkeypatch.setattr(world, "find_delegated", lambda: tmp_path)
    assert find_broken_limits(limited) == []


async def test_before_the_first_command_others_can_not_look_into_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(world, "close_to_others", lambda: asked.append("closed"))
    monkeypatch.setattr(world, "find_delegated", lambda: None)
    async with open_commands(ExecSettings(), RealClock()) as runner:
        assert not asked
        for _ in range(2):
            assert (await runner.run(shell("echo hello"))).stdout == b"hello\n"
    assert asked == ["closed"]


async def test_what_killed_nannies_left_is_removed_at_the_start_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(world, "find_delegated", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, other = tmp_path / "spyweb-0123456789abcdef", tmp_path / "other"
    for folder in (left, other):
        folder.mkdir()
        os.utime(folder, (0, 0))
    async with open_commands(ExecSettings(), RealClock()):
        assert [path.name for path in tmp_path.iterdir()] == ["other"]


ENVIRON = {"SPYWEB_TOKEN": "t", "SPYWEB_COLOUR": "c", "HOME": "/root", "MY_SPYWEB_X": "x", "SPYWEB_": "?"}


def test_scripts_see_spyweb_variables_without_the_prefix_and_nothing_else() -> None:
    assert visible_environment(ENVIRON) == {"TOKEN": "t", "COLOUR": "c"}


def test_denied_names_are_hidden_however_they_are_written() -> None:
    assert visible_environment(ENVIRON, ["COLOUR"]) == {"TOKEN": "t"}
    assert visible_environment(ENVIRON, ["SPYWEB_COLOUR", "TOKEN"]) == {}


@pytest.mark.parametrize("deny", [(), ("TOKEN",), ("TOKEN", "COLOUR")])
@pytest.mark.parametrize("secret", ["SPYWEB_API_KEY", "SPYWEB_STORE_PASSWORD", "SPYWEB_STORE_KEY"])
def test_the_daemons_own_secrets_are_hidden_whatever_is_denied_besides(deny: tuple[str, ...], secret: str) -> None:
    environ = ENVIRON | {secret: "s"}
    assert "s" not in visible_environment(environ, deny).values()


def test_bytes_that_are_no_text_cannot_break_the_frame_that_carries_them() -> None:
    assert visible_environment({"SPYWEB_X": "a\udcff"}) == {"X": "a\ufffd"}


ASKED = TelemetrySettings(otlp_endpoint="http://127.0.0.1:9/v1/traces")


@pytest.mark.parametrize(("settings", "said"), [(TelemetrySettings(), []), (ASKED, ["pip install 'spyweb[otel]'"])])
async def test_without_the_extra_only_a_setting_that_asks_for_traces_gives_a_line(
    monkeypatch: pytest.MonkeyPatch, settings: TelemetrySettings, said: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "spyweb.tracing.otel", None)
    async with AsyncExitStack() as stack:
        with capture_logs() as lines:
            assert await open_tracer(stack, settings) is None
    assert len(lines) == len(said)
    assert all(words in line["event"] for words, line in zip(said, lines, strict=True))


def test_a_collector_that_answers_nothing_does_not_hold_up_a_stop() -> None:
    began = time.perf_counter()
    end_within(lambda: time.sleep(5), 0.05)
    assert time.perf_counter() - began < 2
