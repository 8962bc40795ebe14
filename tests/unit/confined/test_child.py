from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import structlog

import spyweb
from spyweb.clock import RealClock
from spyweb.confined.child import (
    EVERY,
    MOST_READ,
    MOST_SHOWN,
    ChildOutput,
    ChildProcess,
    bare_environment,
    describe_exit,
)
from tests.fakes.clock import FakeClock

Events = Sequence[object]


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "it ended with exit code 0"), (-6, "it was ended by SIGABRT"), (-9, "it was ended by SIGKILL"), (-99, "99")],
)
def test_an_exit_is_told_in_words(code: int, words: str) -> None:
    assert words in describe_exit(code)


def test_nothing_is_inherited_that_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_TOKEN", "secret")
    monkeypatch.setenv("PYTHONHOME", "/opt/python")
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # with it, texts could be chosen that collide in a dict

    environment = bare_environment()

    assert environment["PYTHONHOME"] == "/opt/python"
    assert environment["PYTHONPATH"] == str(Path(spyweb.__file__).parents[1])
    assert "SPYWEB_TOKEN" not in environment
    assert "PYTHONHASHSEED" not in environment


def test_libraries_are_found_without_the_site() -> None:
    program = [sys.executable, "-S", "-c", "import spyweb, msgspec, lupa"]
    assert subprocess.run(program, env=bare_environment("lupa", "msgspec"), check=False).returncode == 0
    assert bare_environment("no_such_library") == bare_environment()


@pytest.fixture
def events() -> Iterator[Events]:
    with structlog.testing.capture_logs() as events:
        yield events


def line(text: str) -> dict[str, object]:
    return {"event": "a worker process wrote to its error output", "text": text, "log_level": "error"}


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def output(clock: FakeClock) -> ChildOutput:
    return ChildOutput("a worker process", clock)


async def test_what_comes_in_pieces_is_one_line_with_its_label(
    output: ChildOutput, clock: FakeClock, events: Events
) -> None:
    os.write(output.writer, b"Traceback:\n")
    await clock.turn()
    os.write(output.writer, b"  boom \xff\n")
    assert events == []

    await clock.turn(EVERY)
    assert events == [line("Traceback:\n  boom \ufffd")]
    os.write(output.writer, b"more\n")
    await clock.turn()
    await clock.turn(EVERY)
    assert events[1:] == [line("more")]
    output.close()


async def test_a_flood_is_cut_and_read_no_faster_than_it_is_meant_to_be(
    output: ChildOutput, clock: FakeClock, events: Events
) -> None:
    os.write(output.writer, b"x" * MOST_READ)
    with pytest.raises(BlockingIOError):  # whoever writes more never waits
        os.write(output.writer, b"x")
    for _ in range(20):
        await clock.turn(EVERY / 100)
    assert events == []

    await clock.turn(EVERY)
    assert events == [line("x" * MOST_SHOWN + f" ... ({MOST_READ - MOST_SHOWN} bytes cut)")]
    output.close()


async def test_what_it_wrote_last_is_read_when_it_has_ended(
    output: ChildOutput, clock: FakeClock, events: Events
) -> None:
    os.write(output.writer, b"last words")
    output.close()
    output.close()
    await clock.turn(EVERY)

    assert events == [line("last words")]


async def test_an_end_without_a_word_is_no_line(output: ChildOutput, clock: FakeClock, events: Events) -> None:
    output.given()
    await clock.turn()
    await clock.turn(EVERY)
    output.close()

    assert events == []


async def test_what_a_process_says_is_logged_and_how_it_ended_is_told(output: ChildOutput, events: Events) -> None:
    child = ChildProcess("spyweb.no_such_module", libraries=(), output=output)
    assert await child.wait(RealClock(), 10) == "it ended with exit code 1"
    child.close()

    assert "No module named spyweb.no_such_module" in str(events)


async def test_a_process_has_none_of_the_daemons_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_TOKEN", "secret")
    child = ChildProcess("timeit", "import time; time.sleep(60)", libraries=())
    assert b"SPYWEB_TOKEN" not in Path(f"/proc/{child.pid}/environ").read_bytes()
    child.close()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_one_that_does_not_end_by_itself_is_killed(is_closed: bool) -> None:
    child = ChildProcess("timeit", "import time; time.sleep(60)", libraries=())
    if is_closed:
        child.close()
    assert await child.wait(RealClock(), 0.05) == "it was ended by SIGKILL"
    child.close()


async def test_a_start_that_fails_leaves_nothing_open(output: ChildOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        ChildProcess("timeit", libraries=(), output=output)

    assert len(os.listdir("/proc/self/fd")) == before - 2, "nor the output"
