"""Run the real command line in a process of its own, forked from one that has imported it already.

Loading the command line takes longer than most commands do.  What is forked differs from what is started in nothing
else: arguments, environment, descriptors, signals and exit code are its own.  tests/integration/test_cli_process.py and
tests/unit/cli/test_main.py start it from nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

LONGEST_REQUEST = 1 << 20
# What an interpreter looks at as it starts only.
AT_START = ("PYTHON", "LC_", "LANG", "TZ")


class CommandServer:
    """The process that forks commands, and a socket on which it is asked to."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="spyweb-commands-")
        self.address = str(Path(self._folder) / "server.sock")
        command = [sys.executable, "-m", "tests.fakes.command_server", self.address]
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

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `spyweb WORDS`.  Raises TimeoutExpired, and kills it, where it takes longer than so many seconds."""
        request = json.dumps({"words": list(words), "environment": dict(environment)}).encode()
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
        ):
            connection.settimeout(timeout)
            connection.connect(self.address)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_REQUEST)
            socket.send_fds(connection, [request], [out.fileno(), err.fileno()])
            pid = int(connection.recv(64))
            try:
                code = int(connection.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), timeout) from None
            said = [_whole(file) for file in (out.fileno(), err.fileno())]
        return subprocess.CompletedProcess(list(words), code, *said)


def _whole(descriptor: int) -> str:
    """Return what was written, with the line ends of a text."""
    written = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    return written.decode().replace("\r\n", "\n")


_servers: list[CommandServer] = []


def run_command(
    words: Sequence[str], environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `spyweb WORDS` in a process of its own."""
    names = {*environment, *os.environ}
    if any(name.startswith(AT_START) and environment.get(name) != os.environ.get(name) for name in names):
        command = [sys.executable, "-m", "spyweb", *words]
        return subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=timeout, check=False
        )
    if not _servers:
        _servers.append(CommandServer())
        atexit.register(_servers[0].close)
    return _servers[0].run(words, environment, timeout)


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


def stand_by(connection: socket.socket) -> list[str] | None:
    """Fork the command that is asked for, and send its exit code; return its arguments in the command itself."""
    request, descriptors, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 2)
    asked = json.loads(request)
    pid = os.fork()
    if pid:
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        return None
    connection.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for place, descriptor in enumerate((nothing, *descriptors)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(asked["environment"])
    return list(asked["words"])


def main() -> None:
    main_module = import_module("spyweb.cli.main")
    for table in (main_module.COMMANDS, main_module.STATE):
        for place in table.values():
            import_module(place.partition(":")[0])
    for module in ("spyweb.cli.client", "spyweb.cli.offline", "spyweb.daemon.check", "spyweb.daemon.foreground"):
        import_module(module)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        connection = serve(listener)
    if connection is None:
        return
    words = stand_by(connection)
    if words is not None:
        sys.argv[1:] = words
        runpy.run_module("spyweb", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
