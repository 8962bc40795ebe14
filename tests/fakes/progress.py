"""One line of progress for the whole suite, in place of a dot for each of fourteen thousand tests."""

from __future__ import annotations

import sys
import time

import pytest

REDRAW_S = 0.2
STEP = 0.1  # of all tests, between two lines where nobody watches


class Progress:
    """Counts what has ended; a terminal is redrawn, a file gets a line every tenth."""

    def __init__(self, out: pytest.TerminalReporter) -> None:
        self._out = out
        self._is_watched = sys.stdout.isatty()
        self._total = self._ended = self._failed = 0
        self._shown = 0.0  # when, or of a file how much

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = self._total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._total = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return ("passed" if report.when == "call" else "", "", "") if report.passed else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        if report.when == "teardown":
            self._ended += 1
            self._show()

    def _show(self) -> None:
        is_last = self._ended == self._total
        if self._is_watched:
            if time.monotonic() - self._shown < REDRAW_S and not is_last:
                return
            self._shown = time.monotonic()
        elif self._ended < self._shown * self._total and not is_last:
            return
        else:
            self._shown += STEP
        share = f"{self._ended:,} of {self._total:,} tests, {self._failed} failed"
        self._out.write(f"\r{share}" if self._is_watched and not is_last else f"\r{share}\n", flush=True)
