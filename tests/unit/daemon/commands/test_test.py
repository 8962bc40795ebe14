"""What `spyweb test` shows.  That it runs tests, on real parts: tests/integration/test_lua_tests.py."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from spyweb.cli.output import Format, Meter
from spyweb.daemon.commands.test import (
    SuiteScreen,
    as_ctrl_c,
    code_for,
    complete_suite,
    ended_as_by_ctrl_c,
    show_report,
)
from spyweb.errors import ExitCode
from spyweb.testing.results import CaseResult, Report
from spyweb.views.runs import LogLine
from tests.fakes.command import spyweb

PASSED = CaseResult(suite="shop", test="test_price", passed=True, duration_ms=1.25)
FAILED = CaseResult(
    suite="shop",
    test="test_total",
    passed=False,
    duration_ms=1500,
    reason="jobs/shop/tests.lua:7: 3 is not equal to 4",
    traceback="stack traceback:\n\tjobs/shop/tests.lua:7: in function 'test_total'",
    output=[LogLine(level="info", text="fetched\x1b[31m", at_ms=1)],
)
BROKEN = CaseResult(suite="typo", test="", passed=False, reason="jobs/typo.lua:1: no")


def test_each_test_is_a_line_as_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    moves: list[tuple[int, int]] = []
    screen = SuiteScreen(meter=Meter(lambda total, done: moves.append((total, done))))

    screen.found("shop", 2)
    for result in (PASSED, FAILED, BROKEN):
        screen.ended(result)

    assert capsys.readouterr().out.splitlines() == [
        "ok shop: test_price (1.2 ms)",
        "failed shop: test_total (1.50 s)",
        "failed typo does not load",
    ]
    assert moves[:3] == [(2, 0), (2, 1), (2, 2)]


def test_for_programs_nothing_is_shown_before_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    SuiteScreen(meter=Meter(), is_silent=True).ended(FAILED)
    assert capsys.readouterr().out == ""


def test_failures_are_shown_at_the_end_and_the_last_line_counts(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(Report(results=[PASSED, FAILED], duration_ms=12.3), Format.TABLE)
    assert capsys.readouterr().out == (
        "\n---- shop: test_total ----\n"
        "jobs/shop/tests.lua:7: 3 is not equal to 4\n"
        "stack traceback:\n"
        "\tjobs/shop/tests.lua:7: in function 'test_total'\n"
        "info: fetched\\x1b[31m\n"
        "\ntest result: FAILED. 1 passed; 1 failed; finished in 12.3 ms\n"
    )


def test_an_interrupted_run_shows_what_it_came_to(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(results=[PASSED], is_whole=False)
    show_report(report, Format.TABLE)
    assert capsys.readouterr().out == "\ntest result: ok. 1 passed; 0 failed; interrupted\n"
    assert code_for(report) is ExitCode.INTERRUPTED


def test_a_failure_of_any_kind_is_exit_code_1() -> None:
    assert code_for(Report(results=[PASSED])) is ExitCode.OK
    assert code_for(Report(results=[PASSED, FAILED])) is ExitCode.FAILED
    assert code_for(Report(results=[BROKEN])) is ExitCode.FAILED


def test_sigterm_cancels_what_runs_as_ctrl_c_does() -> None:
    async def story() -> str:
        try:
            await asyncio.to_thread(os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return "not reached"

    ends: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with ended_as_by_ctrl_c(), pytest.raises(KeyboardInterrupt):
        asyncio.run(story())
    assert ends == ["cancelled"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_ends_it_where_ctrl_c_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt):
        as_ctrl_c(signal.SIGTERM, None)


def test_what_failed_is_told_also_where_the_file_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_tests(*_: object) -> Report:
        return Report(results=[FAILED])

    monkeypatch.setattr("spyweb.daemon.testing.run_tests", run_tests)
    answer = spyweb("test", "--junit", str(tmp_path / "no" / "report.xml"), root=tmp_path)
    assert answer.code == 2
    assert answer.err.endswith("no/report.xml: No such file or directory\n")
    assert FAILED.reason in answer.out


def test_the_shell_completes_the_server_beside_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.daemon.commands.test.complete_job", lambda context, incomplete: ["shop"])
    assert complete_suite(None, "s") == ["shop", "server"]  # type: ignore[arg-type]
    assert complete_suite(None, "sh") == ["shop"]  # type: ignore[arg-type]
