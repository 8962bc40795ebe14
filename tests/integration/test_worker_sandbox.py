"""What a worker can still do once it has given up its rights, tried in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's sandbox is Linux's")

PROGRAM = """
import ctypes, errno, json, mmap, os, signal, socket, sys, threading, time
from spyweb.confined.sandbox import give_up_rights
from spyweb.lua.worker import priority

libc = ctypes.CDLL(None, use_errno=True)
ours, theirs = socket.socketpair()
TGKILL = 234 if os.uname().machine == "x86_64" else 131
priority.let_others_ask()
rights = give_up_rights()

def refused(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"

def call(name, *arguments):
    def attempt():
        ctypes.set_errno(0)
        if getattr(libc, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), name)
    return attempt

def in_a_thread():
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join()
    assert done

def have_a_thread_give_way():
    over, level, here = threading.Event(), [], os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=lambda: (over.wait(), level.append(os.getpriority(os.PRIO_PROCESS, 0))))
    thread.start()
    priority.make_give_way(thread.ident)
    over.set()
    thread.join()
    if level != [min(here + priority.LEVELS, 19)]:
        raise OSError(errno.EPERM, str(level))

def talk():
    ours.sendall(b"x")
    assert theirs.recv(1) == b"x"

tried = {
    "open": lambda: open("/etc/passwd"),
    "create": lambda: open("/tmp/spyweb-sandbox-test", "w"),
    "stat": lambda: os.stat("/etc/passwd"),
    "listdir": lambda: os.listdir("/"),
    "socket": socket.socket,
    "fork": call("fork"),
    "exec": call("execv", b"/bin/true", None),
    "ptrace": call("ptrace", 0, 0, 0, 0),
    "kill": lambda: os.kill(os.getppid(), 0),
    "signal a thread elsewhere": call("syscall", TGKILL, os.getppid(), os.getppid(), 0),
    "raise a priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
    "another's priority": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 10),
    "priority of all": lambda: os.setpriority(os.PRIO_USER, 0, 10),
    "pipe": os.pipe,
    "dup": lambda: os.dup(1),
    "unlink": lambda: os.unlink("/tmp/spyweb-sandbox-test"),
    "executable memory": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
    "thread": in_a_thread,
    "memory": lambda: mmap.mmap(-1, 1 << 20),
    "sleep": lambda: time.sleep(0.001),
    "have a thread give way": have_a_thread_give_way,
    "give way": priority.give_way,
    "talk": talk,
    "thread clock": lambda: time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident())),
}
print(json.dumps({"rights": rights, "tried": {name: refused(attempt) for name, attempt in tried.items()}}))
sys.stdout.flush()
os._exit(0)
"""

STILL_ALLOWED = {"thread", "memory", "sleep", "talk", "thread clock", "give way", "have a thread give way"}


@pytest.fixture(scope="module")
def report() -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_what_a_worker_does_not_need_is_refused(report: dict[str, object]) -> None:
    tried = report["tried"]
    assert isinstance(tried, dict)

    assert {name: verdict for name, verdict in tried.items() if name not in STILL_ALLOWED and verdict != "EPERM"} == {}


def test_what_a_worker_needs_still_works(report: dict[str, object]) -> None:
    tried = report["tried"]
    assert isinstance(tried, dict)

    assert {tried[name] for name in STILL_ALLOWED} == {"allowed"}


def test_what_is_in_force_is_said(report: dict[str, object]) -> None:
    assert "no capabilities" in str(report["rights"])
    assert "no new privileges, no ptrace" in str(report["rights"])
    assert "system calls, by seccomp" in str(report["rights"])
