"""Run the real command and the real daemon in a project folder, each as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from spyweb.cli.client import DaemonClient, SocketTransport, find_daemon, of_job
from spyweb.daemon.commands.run import RunOptions, Watcher, run_in_daemon
from spyweb.daemon.commands.start import daemon_command
from spyweb.model import JobId, Outcome, Run, RunId
from spyweb.settings.sections import SOCKET
from spyweb.subjects.health.views import Health
from spyweb.subjects.incidents.commands import incidents
from spyweb.subjects.incidents.views import ChannelTried, IncidentView
from spyweb.subjects.jobs.commands import start_run
from spyweb.subjects.nodes.views import NodeView
from spyweb.subjects.records.commands import page_of
from spyweb.subjects.records.views import RecordView
from spyweb.subjects.runs.commands import newest_runs
from spyweb.views.jobs import JobView
from spyweb.views.runs import RunEnded
from tests.fakes.fork_server import ForkedProcess, can_fork, fork_server, run_command
from tests.fakes.http_client import Reply, ask

T = TypeVar("T")
DaemonProcess = subprocess.Popen[bytes] | ForkedProcess

PATIENCE = 45.0  # seconds; a deadline for a hang, not a measure
REALLY_RAN = (Outcome.SUCCESS, Outcome.FAILED, Outcome.LOST, Outcome.STOPPED)
COMMAND = (sys.executable, "-m", "spyweb")


def eventually(probe: Callable[[], T | None], what: str = "", patience: float = PATIENCE) -> T:
    """Return the first true answer: real processes tell nobody when they are done, so this asks again and again."""
    began = time.monotonic()
    while (so_far := time.monotonic() - began) < patience:
        answer = probe()
        if answer:
            return answer
        time.sleep(min(max(0.01, so_far / 20), 0.1))  # to ask costs the time that others need
    raise AssertionError(f"it never came to {what or probe}")


def clean_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPYWEB_")}
    return {**kept, "NO_COLOR": "1"}


class ProjectClient(DaemonClient):
    """Asks as the commands do."""

    def runs(self, job: JobId | None, *, limit: int) -> list[Run]:
        return newest_runs(self, job, limit=limit)

    def run_once(self, job: JobId, watch: Watcher = lambda _: None, **values: object) -> RunEnded:
        return run_in_daemon(self, job, watch, RunOptions(values=values))

    def records(self, job: JobId, *, limit: int) -> list[RecordView]:
        return page_of(self, job, limit=limit)

    def incidents(self, *, is_open: bool | None, limit: int) -> list[IncidentView]:
        return incidents(self, is_open=is_open, limit=limit)

    def health(self) -> Health:
        return self.ask("GET", "/api/health", Health)

    def nodes(self) -> list[NodeView]:
        return self.ask("GET", "/api/nodes", list[NodeView])

    def trigger(self, job: JobId) -> RunId | None:
        return start_run(self, job)

    def pause(self, job: JobId) -> None:
        self.ask("POST", of_job(job, "pause"), dict)

    def resume(self, job: JobId) -> None:
        self.ask("POST", of_job(job, "resume"), dict)

    def try_channel(self, channel: str) -> ChannelTried:
        return self.ask("POST", f"/api/channels/{channel}/test", ChannelTried)


@dataclass(slots=True)
class Project:
    root: Path
    environment: dict[str, str] = field(default_factory=clean_environment)
    launcher: tuple[str, ...] = ()  # what starts the daemon
    is_quick: bool = False  # its daemons and commands have short waits: see fork_server.py

    def save(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def job(self, name: str, body: str, settings: str = 'every = "never"') -> Path:
        head = "".join(f"-- {line}\n" for line in ("/// job", *settings.splitlines(), "///"))
        return self.save(f"jobs/{name}.lua", head + body)

    def spyweb(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = run_command(["-C", str(self.root), *words], self.environment, timeout=60, is_quick=self.is_quick)
        if code is not None:
            assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def daemon_client(self) -> ProjectClient:
        """Return a client of the running daemon's socket, which starts no command for each question."""
        assert find_daemon(self.root / "data")
        return ProjectClient(SocketTransport(self.root / "data" / SOCKET))

    def ask(self, *words: str) -> list[dict[str, object]]:
        """Return what a command answers as JSON."""
        answer = json.loads(self.spyweb(*words, "-o", "json").stdout)
        assert isinstance(answer, list)
        return answer

    def runs(self, job: str) -> list[Run]:
        """Return the runs of a job, newest first."""
        return self.daemon_client().runs(JobId(job), limit=100)

    def ended(self, job: str, count: int = 1) -> list[Run]:
        """Wait until a job has that many ended runs; return them, newest first."""

        def enough() -> list[Run] | None:
            if all(view.id != job for view in self.daemon_client().jobs()):
                return None
            found = [run for run in self.runs(job) if run.outcome in REALLY_RAN]
            return found if len(found) >= count else None

        return eventually(enough, f"{count} ended runs of {job}")

    def shown(self, job: str) -> JobView:
        return next(view for view in self.daemon_client().jobs() if view.id == job)

    def result(self, job: str) -> object:
        """Return what a run by hand returns."""
        return self.daemon_client().run_once(JobId(job)).result

    @contextmanager
    def daemon(self, *flags: str) -> Iterator[Daemon]:
        daemon = self.start(*flags)
        try:
            yield daemon
        finally:
            daemon.kill()

    def launch(self, *flags: str) -> Daemon:
        """Start a daemon, and don't wait."""
        with (self.root / "daemon.out").open("w") as log:
            return Daemon(self._start_process(flags, log.fileno()), self.root / "daemon.out")

    def start(self, *flags: str) -> Daemon:
        daemon = self.launch(*flags)
        try:
            eventually(lambda: daemon.has_said('"started"') or daemon.process.poll() is not None, "started")
        except BaseException:
            daemon.kill()
            raise
        return daemon

    def _start_process(self, flags: Sequence[str], log: int) -> DaemonProcess:
        """Start the command; without flags, what it becomes."""
        words = ["spyweb", "-C", str(self.root), "start", "--port", "0", *flags]
        if not flags:
            command = daemon_command(self.root, {"port": 0})
            words = command[command.index("-m") + 1 :]
        if not self.launcher and can_fork(self.environment):
            return fork_server().start(words, self.environment, log, log, is_quick=self.is_quick)
        assert not self.is_quick, "only a daemon that is forked has short waits"
        return subprocess.Popen(
            [*self.launcher, sys.executable, "-m", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


@dataclass(slots=True)
class Daemon:
    process: DaemonProcess
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.output.read_text()

    def has_said(self, text: str) -> bool:
        return text in self.said()

    @property
    def url(self) -> str:
        """The address of its server, as it said when it started."""
        (line,) = (line for line in self.said().splitlines() if '"started"' in line)
        return str(json.loads(line)["url"])

    def ask(self, path: str, method: str = "GET", body: str | bytes | None = None, **headers: str) -> Reply:
        return ask(self.url, path, method, body, headers)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def daemon(root: Path) -> Iterator[tuple[DaemonProcess, ProjectClient]]:
    """Killed if the test leaves it running."""
    project = Project(root, is_quick=True)
    with project.daemon() as started:
        yield started.process, project.daemon_client()
