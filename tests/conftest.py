"""Give every test an environment without spyweb's own variables, logging as it was before it, files in memory, and
`--torture` to those that can do more."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import hypothesis
import pytest
import structlog
from xdist.scheduler import LoadFileScheduling

from tests.fakes.postgres import PostgresPlace, PostgresServer, fresh_schema, own_server
from tests.fakes.progress import Progress

BROWSER = "tests/browser/"
UNITS = Path(__file__).parent / "unit"
IN_MEMORY = Path("/dev/shm")
ROOM = 2 << 30  # bytes; some runs leave 100 MB each


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--progress", action="store_true", help="one line that counts, instead of a dot for each test")
    parser.addoption("--torture", action="store_true", help="the deep tests too, and stress tests at length")
    parser.addoption("--minutes", type=float, default=2, help="how long nodes of a cluster are killed (2)")
    parser.addoption("--due", type=int, default=400, help="how many runs a second are due meanwhile (400)")


@pytest.hookimpl(trylast=True)  # the reporter is there by then
def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected
    use_profile(is_deep=config.getoption("--torture"))
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.getoption("--progress") and reporter is not None:
        config.pluginmanager.register(Progress(reporter))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of hundreds of daemons compiles all of spyweb anew
    sys.dont_write_bytecode = False  # nor need every run compile all tests anew
    put_files_in_memory()
    render_tracebacks_plainly()
    hear_signals()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the deep tests out, unless they are asked for; order those of several processes."""
    if not config.getoption("--torture"):
        deep = [item for item in items if item.get_closest_marker("deep")]
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
    if hasattr(config, "workerinput"):
        items[:] = by_turns(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hand out files, but all that need the browser to one process: each further one would start its own."""
    scheduler = LoadFileScheduling(config, log)
    scope_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: BROWSER if nodeid.startswith(BROWSER) else scope_of(nodeid)
    return scheduler if config.getoption("dist") == "loadfile" else None


def by_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order a file that mostly calculates after each that mostly waits, so that processes do neither all at once."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if UNITS not in path.parents]
    pairs = zip_longest(waiting, [path for path in files if UNITS in path.parents])
    return [item for pair in pairs for path in pair if path for item in files[path]]


def use_profile(*, is_deep: bool) -> None:
    """Have hypothesis try few examples, the same each time; at length many, and others each time. No time counts."""
    timeless = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.register_profile("deep", timeless, max_examples=200)
    hypothesis.settings.register_profile("quick", timeless, max_examples=15, stateful_step_count=20, derandomize=True)
    hypothesis.settings.load_profile("deep" if is_deep else "quick")


def pytest_collection_finish() -> None:
    """Leave the tests themselves, which are most of what there is, out of every search for garbage."""
    gc.freeze()
    gc.enable()


def put_files_in_memory() -> None:
    """Put the files of all tests into memory: no test pulls the plug, so a disk would prove no more.

    `--basetemp`, or PYTEST_DEBUG_TEMPROOT in the environment, puts their files elsewhere.
    """
    if os.access(IN_MEMORY, os.W_OK):
        place = os.statvfs(IN_MEMORY)
        if place.f_bavail * place.f_frsize > ROOM and not place.f_flag & os.ST_NOEXEC:  # some tests write programs
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def hear_signals() -> None:
    """Undo what a shell does to what it runs in the background, and `nohup`: all processes of tests inherit it."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def render_tracebacks_plainly() -> None:
    """Where logging is not set up, structlog would have rich draw each traceback with all its source and variables."""
    renderer = structlog.get_config()["processors"][-1]
    assert isinstance(renderer, structlog.dev.ConsoleRenderer)
    renderer.exception_formatter = structlog.dev.plain_traceback


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> bool:
    """Return whether a stress test may take minutes."""
    return bool(request.config.getoption("--torture"))


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> float:
    """Return how long a test of chance goes on."""
    return float(request.config.getoption("--minutes"))


@pytest.fixture
def due(request: pytest.FixtureRequest) -> int:
    """Return how many runs a second are due in it."""
    return int(request.config.getoption("--due"))


@pytest.fixture
def postgres() -> Iterator[PostgresPlace]:
    """Return an empty place on the PostgreSQL that all tests of a run share."""
    with fresh_schema() as place:
        yield place


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """Return a server that only this test uses: it may be stopped, frozen, killed."""
    with own_server() as server:
        yield server


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove spyweb's variables from the environment: what the machine sets must not decide a test."""
    for name in list(os.environ):
        if name.startswith("SPYWEB_") or name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "NO_COLOR"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def restored_logs() -> Iterator[None]:
    """Restore logging: commands that run the daemon's parts set it up for their process, which all tests share."""
    root, ours = logging.getLogger(), logging.getLogger("spyweb")
    handlers, level, our_level = list(root.handlers), root.level, ours.level
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.setLevel(our_level)
        logging.captureWarnings(False)
