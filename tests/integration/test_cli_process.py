"""The command as a process: what it becomes, what it answers to Ctrl-C, and what the daemon has in memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from spyweb.cli.client import DaemonClient, SocketTransport, find_daemon
from spyweb.daemon.commands import start
from spyweb.model import JobId
from spyweb.settings.sections import LOCK_NAME
from spyweb.subjects.health.views import Health
from spyweb.subjects.runs.commands import newest_runs
from tests.fakes.command import Answer, spyweb
from tests.fakes.project import Project, eventually

pytestmark = pytest.mark.slow

SPYWEB = [sys.executable, "-m", "spyweb"]
REPOSITORY = Path(__file__).parents[2]
HEAD_OF_IMPORTS = "imported package\n"
PATIENCE = 20.0  # seconds; a machine under load is slow
SLEEPER = """-- /// job
-- every = "never"
-- ///
function run()
  print("asleep")
  sleep(60000)
end
"""
TALKER = """-- /// job
-- every = "100ms"
-- ///
function run()
  for _ = 1, 40 do log(("x"):rep(1000)) end
end
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "sleeper.lua").write_text(SLEEPER)
    return tmp_path


@contextmanager
def process(command: list[str], errors: IO[str] | int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """Killed if the test leaves it running."""
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def wait_for_daemon(root: Path) -> DaemonClient:
    daemon = eventually(lambda: find_daemon(root / "data"), "a daemon")
    eventually(daemon.jobs, "its jobs")
    return daemon


def test_a_run_waits_for_a_daemon_that_starts(project: Path) -> None:
    for number in range(200):  # which take a moment to load
        (project / "jobs" / f"other{number}.lua").write_text("-- /// job\n-- every = 'never'\n-- ///\n")
    (project / "jobs" / "quick.lua").write_text("-- /// job\n-- every = 'never'\n-- ///\nreturn 'done'\n")
    daemon = Project(project).launch()
    eventually((project / "data" / LOCK_NAME).exists, "a daemon that starts")
    answer = spyweb("run", "quick", root=project)
    daemon.kill()
    assert (answer.code, answer.lines[:1]) == (0, ["returned done"]), answer


def test_start_becomes_the_daemon_and_ctrl_c_ends_it_with_0(project: Path) -> None:
    with process([*SPYWEB, "-C", str(project), "start", "-n"]) as started:
        daemon = wait_for_daemon(project)
        assert daemon.ask("GET", "/api/health", Health).pid == started.pid
        started.send_signal(signal.SIGINT)
        assert started.wait(PATIENCE) == 0
    assert find_daemon(project / "data") is None
    assert not (project / "data" / "spyweb.sock").exists()


def test_stop_ends_the_daemon_waits_for_its_end_and_names_the_runs_that_it_cut_short(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "config.toml").write_text('[daemon]\nshutdown_grace = "100ms"\n')
    with Project(project).daemon() as started:
        with monkeypatch.context() as another:  # a link in the folder may lead root to any service
            another.setattr(SocketTransport, "peer", lambda _: (os.getpid(), 12345))
            assert "not a process of the folder's owner" in spyweb("stop", root=project).err
        run = spyweb("trigger", "sleeper", "-o", "json", root=project).json["run"]
        answer = spyweb("stop", root=project)
        assert started.process.wait(PATIENCE) == 0
        assert answer.out.startswith(f"stopped the daemon of {project} (pid {started.pid}) in ")
        assert answer.err == "runs of sleeper have 100ms to end\n"
    (row,) = spyweb("runs", "-o", "json", root=project).json
    assert (row["id"], row["outcome"]) == (run, "stopped")


def test_a_second_stop_leaves_runs_the_time_that_the_first_gave_them(project: Path) -> None:
    (project / "jobs" / "sleeper.lua").write_text(SLEEPER.replace("60000", "1000"))
    with Project(project).daemon() as started:
        spyweb("trigger", "sleeper", root=project)
        (project / "config.toml").write_text("oops")  # the daemon has read it before
        started.process.send_signal(signal.SIGTERM)
        assert spyweb("stop", root=project).code == 0
        assert started.process.wait(PATIENCE) == 0
        assert "config.toml:1: not valid TOML" in spyweb("stop", root=project).err
        (project / "config.toml").unlink()
    assert [row["outcome"] for row in spyweb("runs", "-o", "json", root=project).json] == ["success"]


def test_stop_without_a_daemon_says_so_in_one_line(project: Path) -> None:
    assert spyweb("stop", root=project) == Answer(0, f"no daemon runs in {project}\n", "")
    nothing: dict[str, object] = {"stopped": False, "pid": None, "took_ms": 0, "running": []}
    assert spyweb("stop", "-o", "json", root=project).json == nothing


def test_stop_gives_up_on_a_daemon_that_hangs_or_is_started_again_and_says_how_to_end_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "PATIENCE_MS", 0)
    monkeypatch.setattr(start, "ANSWER_S", 0.2)
    (project / "config.toml").write_text('[daemon]\nshutdown_grace = "100ms"\n')
    with Project(project).daemon() as started:
        started.process.send_signal(signal.SIGSTOP)
        answer = spyweb("stop", root=project)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.endswith(f"`kill -9 {started.pid}` ends it at once\n")
        listeners = iter([(started.pid, None), (7, None)])
        monkeypatch.setattr(SocketTransport, "peer", lambda _: next(listeners))
        again = f"(pid {started.pid}) has ended, and another (pid 7) was started in its place"
        assert again in spyweb("stop", root=project).err


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The end of whoever sits there, and the other one."""
    ours, theirs = os.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        with suppress(OSError):
            os.close(end)


def start_on(terminal: int, project: Path, prelude: str = "pass") -> subprocess.Popen[bytes]:
    become = "os.execv(sys.executable, [sys.executable, '-m', 'spyweb', *sys.argv[1:]])"
    script = f"import os, signal, sys; os.login_tty(0); {prelude}; {become}"
    command = [sys.executable, "-c", script, "-C", str(project), "start", "--no-server"]
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=terminal)


def test_a_daemon_stops_when_its_terminal_is_closed(project: Path, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with start_on(theirs, project) as daemon:
        os.close(theirs)
        wait_for_daemon(project)
        daemon.send_signal(signal.SIGHUP)  # its terminal is still there
        wait_for_daemon(project)
        os.close(ours)

        assert daemon.wait(PATIENCE) == 0


def test_a_daemon_under_nohup_outlives_its_terminal(project: Path, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with start_on(theirs, project, "signal.signal(signal.SIGHUP, signal.SIG_IGN)") as daemon:
        os.close(theirs)
        wait_for_daemon(project)
        os.close(ours)
        time.sleep(0.5)
        wait_for_daemon(project)
        daemon.terminate()

        assert daemon.wait(PATIENCE) == 0


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_a_daemon_stops_with_0_whichever_of_its_streams_was_closed(project: Path, closed: str) -> None:
    with process(in_shell(f"exec $SPYWEB start -n {closed}", project)) as daemon:
        wait_for_daemon(project)
        daemon.terminate()
        assert daemon.wait(PATIENCE) == 0
        assert daemon.stderr is not None
        assert daemon.stderr.read() == ""


def test_a_daemon_whose_output_nobody_reads_goes_on_and_stops(project: Path) -> None:
    """Its stdout and stderr are one pipe here, which holds 64 KB."""
    (project / "jobs" / "talker.lua").write_text(TALKER)
    with process([*SPYWEB, "-C", str(project), "start", "-n"], subprocess.STDOUT) as started:
        daemon = wait_for_daemon(project)
        eventually(lambda: len(newest_runs(daemon, JobId("talker"), limit=10)) == 10, "ten runs")
        started.terminate()
        assert started.wait(PATIENCE) == 0


def test_an_answer_to_a_closed_stdout_is_no_traceback(project: Path) -> None:
    answer = subprocess.run(in_shell("$SPYWEB jobs >&-", project), capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


def in_shell(script: str, project: Path) -> list[str]:
    """In it, $SPYWEB is the command for the project."""
    return ["sh", "-c", f'cd {REPOSITORY}; SPYWEB="{" ".join(SPYWEB)} -C {project}"; {script}']


def test_a_daemon_whose_path_is_not_utf8_is_refused_in_one_line(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    (root / "jobs").mkdir(parents=True)
    answer = subprocess.run([*SPYWEB, "-C", str(root), "start", "-n"], cwd=REPOSITORY, capture_output=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.endswith(b"caf\\xe9: a daemon's folder needs a path that is UTF-8\n")
    assert answer.stderr.count(b"\n") == 1


def test_the_daemon_has_not_the_command_line_in_memory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    told = project / "imports.txt"  # not a pipe: the list is longer than one holds
    with told.open("w") as errors, process([*SPYWEB, "-C", str(project), "start", "-n"], errors) as daemon:
        assert wait_for_daemon(project).is_ready()
        daemon.terminate()
        assert daemon.wait(PATIENCE) == 0
    command_line, *after = told.read_text().split(HEAD_OF_IMPORTS)[1:]  # each program starts a list of its own
    assert "typer" in packages_in(command_line)
    assert {"spyweb", "aiohttp"} <= packages_in(after[0])
    assert not packages_in("\n".join(after)) & {"typer", "click", "pydantic"}


def packages_in(told: str) -> set[str]:
    """Whose modules were loaded.  A package's own name may be there for an attempt that failed."""
    names = (line.rpartition("|")[2].strip() for line in told.splitlines())
    return {package for package, dot, _ in (name.partition(".") for name in names) if dot}


def test_ctrl_c_ends_a_run_in_the_foreground_with_130_and_no_traceback(project: Path) -> None:
    with process([*SPYWEB, "-C", str(project), "run", "sleeper"]) as started:
        assert started.stdout is not None
        assert "asleep" in started.stdout.readline()
        started.send_signal(signal.SIGINT)
        _, told = started.communicate(timeout=PATIENCE)
    assert started.returncode == 130
    assert "Traceback" not in told


def test_ctrl_c_leaves_a_run_to_the_daemon_that_runs_it(project: Path) -> None:
    with Project(project).daemon(), process([*SPYWEB, "-C", str(project), "run", "sleeper"]) as watcher:
        assert watcher.stdout is not None
        assert "asleep" in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(PATIENCE) == 130
        assert [job.in_flight for job in wait_for_daemon(project).jobs()] == [1]


def test_a_reader_that_goes_away_ends_a_run_in_the_foreground(project: Path) -> None:
    (project / "jobs" / "talker.lua").write_text("while true do log('on and on') sleep(5) end")
    with process([*SPYWEB, "-C", str(project), "run", "talker"]) as started:
        assert started.stdout is not None
        assert "on and on" in started.stdout.readline()
        started.stdout.close()
        assert started.stderr is not None
        assert started.stderr.read() == ""
        assert started.wait(PATIENCE) == 141


UNWRITTEN = "spyweb: can't write the answer: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--help >/dev/full", UNWRITTEN),
        ("jobs >/dev/full", UNWRITTEN),
        ("jobs >/dev/full 2>&1", ""),  # the exit code says it
    ],
)
def test_an_answer_that_can_not_be_written_is_one_clear_line(project: Path, words: str, told: str) -> None:
    answer = subprocess.run(in_shell(f"$SPYWEB {words}", project), capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (2, told)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_complete_commands_and_jobs(project: Path, shell: str) -> None:
    words = {
        "bash": {"COMP_WORDS": f"spyweb -C {project} run sl", "COMP_CWORD": "4"},
        "zsh": {"_TYPER_COMPLETE_ARGS": f"spyweb -C {project} run sl"},
        "fish": {"_TYPER_COMPLETE_ARGS": f"spyweb -C {project} run sl", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {**os.environ, **words, "_SPYWEB_COMPLETE": f"complete_{shell}"}
    answer = subprocess.run(SPYWEB, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert "sleeper" in answer.stdout
