"""Start the real daemon on a project of many jobs: `spyweb start` as a process, until READY."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import command_line, family

PATIENCE = 120.0  # seconds; a deadline for a hang, not a measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    pid: int
    ready_s: float  # from the start of its process to READY

    def zygote(self) -> int:
        """Return the daemon's own child; workers are the zygote's."""
        return next(pid for pid in family(self.pid)[1:] if "zygote" in command_line(pid))

    def workers(self) -> list[int]:
        return family(self.zygote())[1:]


def write_jobs(root: Path, names: list[str], every: str, source: str) -> None:
    (root / "jobs").mkdir(exist_ok=True)
    for name in names:
        (root / "jobs" / f"{name}.lua").write_text(f'-- /// job\n-- every = "{every}"\n-- ///\n{source}')


@contextmanager
def running(root: Path, *flags: str) -> Iterator[Daemon]:
    """Run the daemon as systemd starts it, and stop it afterwards."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify_socket:
        notify_socket.settimeout(PATIENCE)
        notify_socket.bind(str(root / "notify"))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPYWEB_")}
        command = [sys.executable, "-m", "spyweb", "-C", str(root), "start", "--port", "0", *flags]
        began = time.perf_counter()
        with (root / "daemon.out").open("w") as output:
            process = subprocess.Popen(
                command,
                env={**environment, "NOTIFY_SOCKET": str(root / "notify")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            while b"READY=1" not in notify_socket.recv(4096):
                pass
            yield Daemon(pid=process.pid, ready_s=time.perf_counter() - began)
        except TimeoutError:
            raise RuntimeError(f"not ready: {(root / 'daemon.out').read_text()[-2000:]}") from None
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
