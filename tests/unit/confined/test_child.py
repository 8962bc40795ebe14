from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import spyweb
from spyweb.confined import child
from spyweb.confined.child import bare_environment, describe_exit


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


def test_a_process_that_does_not_end_at_once_is_waited_for_beside_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "AT_ONCE_S", 0.01)
    process = subprocess.Popen(["/bin/sleep", "60"])
    monkeypatch.setattr(process, "kill", lambda: None)  # as one that waits for a disk takes it
    try:
        child.end(process)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
    while process.returncode is None:  # the other thread has it
        time.sleep(0.01)
    assert process.returncode == -signal.SIGKILL
