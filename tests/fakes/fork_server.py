"""Run the real command line and the real daemon in processes of their own, forked from one that has imported them.

To import them takes longer than most of what they are asked to do.  What is forked differs from what is started in
nothing else: arguments, environment, descriptors, signals and exit code are its own.  Commands start from nothing in
tests/integration/test_cli_process.py and tests/unit/cli/test_main.py; so does a daemon with a launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from spyweb.daemon.commands import start

LONGEST_REQUEST = 1 << 20
# What a daemon or command waits for of its own accord, a tenth of it, for tests of what follows: in seconds, or as the
# name says.
SHORT_WAITS: Mapping[str, Mapping[str, float]] = {
    "spyweb.alerts.signs": {"CHECK_S": 0.5, "STEADY_S": 1.2},
    "spyweb.alerts.watcher": {"LEAST_S": 0.1},
    "spyweb.alerts.channel_check": {"AGAIN_S": 2.0},
    "spyweb.incidents.telling": {"COLLECT_MS": 500},
    "spyweb.daemon.chores": {"HEARTBEAT_S": 0.5, "DRIFT_S": 0.5, "STATUS_S": 1.0},
    "spyweb.daemon.commands.run": {"STARTING_S": 1.0},
}
# What an interpreter looks at as it starts only.
AT_START = ("PYTHON", "LC_", "LANG", "TZ")


class ForkedProcess:
    """A process that the server has forked; it has those methods of a Popen that tests use."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks, and a socket on which it is asked to."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="spyweb-fork-server-")
        self.address = str(Path(self._folder) / "server.sock")
        command = [sys.executable, "-m", "tests.fakes.fork_server", self.address]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.address)
        os.rmdir(self._folder)

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], out: int, err: int, *, is_quick: bool = False
    ) -> ForkedProcess:
        """Start `python -m WORDS`, whose output goes to these descriptors; a quick one has short waits."""
        asked = {"words": list(words), "environment": dict(environment), "is_quick": is_quick}
        request = json.dumps(asked).encode()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self.address)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_REQUEST)
        socket.send_fds(connection, [request], [out, err])
        return ForkedProcess(int(connection.recv(64)), connection)


_servers: list[ForkServer] = []


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a process with this environment may be forked: not where its interpreter would start otherwise."""
    names = {*environment, *os.environ}
    return all(environment.get(name) == os.environ.get(name) for name in names if name.startswith(AT_START))


def fork_server() -> ForkServer:
    if not _servers:
        _servers.append(ForkServer())
        atexit.register(_servers[0].close)
    return _servers[0]


def run_command(
    words: Sequence[str], environment: Mapping[str, str], timeout: float, *, is_quick: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `spyweb WORDS` in a process of its own.  Raises TimeoutExpired, and kills it, after so many seconds."""
    command = [sys.executable, "-m", "spyweb", *words]
    if not can_fork(environment):
        return subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=timeout, check=False
        )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = fork_server().start(["spyweb", *words], environment, out.fileno(), err.fileno(), is_quick=is_quick)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        written = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in (out, err)]
    said = [text.decode().replace("\r\n", "\n") for text in written]
    return subprocess.CompletedProcess(list(words), process.wait(), *said)


# In the process that forks


def serve(listener: socket.socket) -> socket.socket | None:
    """Fork for each connection until stdin is closed; return the connection in what is forked, None in the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if listener not in ready:
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return connection
        connection.close()


def stand_by(connection: socket.socket) -> list[str]:
    """Fork the process that is asked for, return its arguments there; here, send its exit code and end."""
    request, descriptors, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 2)
    asked = json.loads(request)
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):  # whoever asked has ended
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for place, descriptor in enumerate((nothing, *descriptors)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["environment"])
    for module, waits in SHORT_WAITS.items() if asked["is_quick"] else ():
        for name, wait in waits.items():
            assert hasattr(sys.modules[module], name), f"{module} has no {name} any more"
            setattr(sys.modules[module], name, wait)
    return list(asked["words"])


def become(module: str) -> None:
    """Run a module as `python -m` does, and end as an interpreter does, but for its taking itself apart.

    That would copy each page of memory that is shared with the server.
    """
    sys.orig_argv = [sys.executable, "-m", module, *sys.argv[1:]]
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def become_daemon(command: Sequence[str]) -> None:
    """Stand in for the execution of `python -m spyweb.daemon ARGUMENTS` by `spyweb start`: it is imported here."""
    sys.argv[1:] = command[command.index("-m") + 2 :]
    become("spyweb.daemon")


def main() -> None:
    main_module = import_module("spyweb.cli.main")
    for table in (main_module.COMMANDS, main_module.STATE):
        for place in table.values():
            import_module(place.partition(":")[0])
    for module in ("cli.client", "cli.offline", "daemon.check", "daemon.foreground", "daemon.process"):
        import_module(f"spyweb.{module}")
    gc.collect()
    gc.freeze()  # or the first collection in each fork copies all of it
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        connection = serve(listener)
    if connection is not None:
        module, *sys.argv[1:] = stand_by(connection)
        start.become = become_daemon
        become(module)


if __name__ == "__main__":
    main()
