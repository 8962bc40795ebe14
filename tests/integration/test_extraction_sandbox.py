"""What an extractor process can still do, tried inside one; and its limits, in one whose limits are lower."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spyweb.confined.child import bare_environment
from spyweb.confined.frames import receive_frame
from spyweb.extraction.process import MALLOC
from spyweb.extraction.wire import Answer, Done, Extract, ExtractorReady, Rows, decode_answer, frame

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's sandbox is Linux's")

ATTACK = """
import ctypes, errno, json, mmap, os, resource, signal, socket, sys
from spyweb.extraction.worker import main as extractor

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    def attempt():
        ctypes.set_errno(0)
        if getattr(libc, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), name)
    return attempt

def refused(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"

ATTEMPTS = {
    "open": lambda: open("/etc/passwd"),
    "create": lambda: open("/tmp/spyweb-extractor-test", "w"),
    "stat": lambda: os.stat("/etc/passwd"),
    "listdir": lambda: os.listdir("/"),
    "unlink": lambda: os.unlink("/tmp/spyweb-extractor-test"),
    "socket": socket.socket,
    "socketpair": socket.socketpair,
    "fork": call("fork"),
    "exec": call("execv", b"/bin/true", None),
    "ptrace": call("ptrace", 0, 0, 0, 0),
    "kill": lambda: os.kill(os.getppid(), 0),
    "pipe": os.pipe,
    "dup": lambda: os.dup(1),
    "executable memory": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
    "raise its memory": call("setrlimit", resource.RLIMIT_AS, None),
}

def attack(sock):
    sock.sendall(json.dumps({name: refused(attempt) for name, attempt in ATTEMPTS.items()}).encode())

extractor.Serving.serve = lambda self: attack(self._socket)
extractor.main()
"""

LIMITED = """
from spyweb.extraction.worker import main as extractor

extractor.MEMORY_LIMIT = 128 << 20
extractor.PAGES = 3
extractor.main()
"""


@contextmanager
def process(program: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    ours, theirs = socket.socketpair()
    with theirs:
        started = subprocess.Popen(
            [sys.executable, "-P", "-c", program, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=bare_environment() | MALLOC,
        )
    try:
        with ours:
            yield started, ours
    finally:
        started.kill()
        started.wait()


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class ExtractorClient:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def hear(self) -> Answer:
        data = receive_frame(self._socket)
        assert data, "it is gone"
        (answer,) = decode_answer(memoryview(data))
        return answer

    def ask(self, body: bytes, selector: str = "p") -> tuple[list[list[str]], Done]:
        wanted = Extract(size=len(body), content_type="", url="", selector=selector, fields=(("", None),))
        self._socket.sendall(frame(wanted) + body)
        rows: list[list[str]] = []
        while isinstance(answer := self.hear(), Rows):
            rows += answer.rows
        assert isinstance(answer, Done)
        return rows, answer


@pytest.fixture
def limited() -> Iterator[ExtractorClient]:
    with process(LIMITED) as (_, sock):
        client = ExtractorClient(sock)
        assert isinstance(client.hear(), ExtractorReady)
        yield client


@LINUX
def test_what_an_extractor_does_not_need_is_refused() -> None:
    with process(ATTACK) as (_, sock):
        heard = b""
        while chunk := sock.recv(65_536):
            heard += chunk
        end = 4 + int.from_bytes(heard[:4], "little")
        (ready,) = decode_answer(memoryview(heard)[4:end])

    assert isinstance(ready, ExtractorReady)
    assert "no new privileges, no ptrace" in ready.rights
    assert any("by seccomp" in right for right in ready.rights)
    assert {name: verdict for name, verdict in json.loads(heard[end:]).items() if verdict != "EPERM"} == {}


def test_it_is_replaced_after_so_many_pages(limited: ExtractorClient) -> None:
    assert [limited.ask(b"<p>x") for _ in range(3)] == [
        ([["x"]], Done()),
        ([["x"]], Done()),
        ([["x"]], Done(is_spent=True)),
    ]


@pytest.mark.parametrize("body", [b"<p>" * 1_000_000, b"<a><b><i><p>" * 100_000, b"<p>" + b"x" * 50_000_000])
def test_a_page_that_takes_too_much_memory_is_refused(limited: ExtractorClient, body: bytes) -> None:
    rows, done = limited.ask(body, "none")

    assert (rows, done.is_spent) == ([], True)
    assert "more than 1 GB of memory" in (done.problem or "")


@pytest.mark.parametrize("count", [300_000, 380_000])
def test_where_memory_ends_there_is_never_a_part_of_the_result(limited: ExtractorClient, count: int) -> None:
    rows, done = limited.ask(b"<p>" * count)

    assert done.problem or len(rows) == count


@LINUX
def test_memory_is_given_back_after_a_large_page() -> None:
    with process("from spyweb.extraction.worker.main import main; main()") as (started, sock):
        client = ExtractorClient(sock)
        assert isinstance(client.hear(), ExtractorReady)
        before = resident(started.pid)

        assert len(client.ask(b"<b>x</b>" * 300_000, "p")[0]) == 0

        assert resident(started.pid) < before + 20_000_000  # it took 90 MB, and would keep them


@pytest.mark.parametrize("sent", [b"", b"\1\0", frame(Extract(9, "", "", "p", ())), b"\x00\x00\x10\x00abc"])
def test_it_ends_with_the_daemon(sent: bytes) -> None:
    with process("from spyweb.extraction.worker.main import main; main()") as (started, sock):
        assert isinstance(ExtractorClient(sock).hear(), ExtractorReady)
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)

        assert started.wait(10) == 0
