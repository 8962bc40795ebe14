"""What every test gets: an environment without spyweb's own variables, and `--torture` for those that can do more."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", help="stress tests at length")


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> bool:
    """Whether a stress test may take minutes."""
    return bool(request.config.getoption("--torture"))


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine sets must not decide a test."""
    for name in list(os.environ):
        if name.startswith("SPYWEB_") or name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "NO_COLOR"):
            monkeypatch.delenv(name)
