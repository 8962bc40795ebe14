"""The life of a worker process: it gives up its rights, reports that, and works until its daemon is gone.

A message becomes a step of a VM in four places: `Threads` reads it, `MessageHandler` finds or makes the run and claims
its VM, `Executor` steps the VM, and `Sender` sends the result.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading

from spyweb.confined import sandbox
from spyweb.confined.parent import stand_behind_parent
from spyweb.lua.wire import WorkerReady
from spyweb.lua.worker import priority
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Receiver, Sender
from spyweb.lua.worker.message_handler import MessageHandler
from spyweb.lua.worker.runs import Registry
from spyweb.lua.worker.threads import Threads, ThreadSlots
from spyweb.lua.worker.vm import Bytecode

_SWITCH = 0.0005  # seconds that a thread back from Lua waits for one that is in Python; the default is too long for us
_GARBAGE = 50_000  # objects between two garbage collections: there are few cycles here


def work(small: int, bulk: int, slots: int, bytecode: Bytecode) -> None:
    """Run the worker on its three descriptors: both sockets and the shared memory.  Never returns."""
    sys.setswitchinterval(_SWITCH)
    gc.set_threshold(_GARBAGE)
    _empty_environment()
    shared = ThreadSlots(slots)
    os.close(slots)
    small_socket, bulk_socket = socket.socket(fileno=small), socket.socket(fileno=bulk)
    sender = Sender(small_socket, bulk_socket)
    place = stand_behind_parent(priority.BEHIND)
    priority.let_others_ask()
    rights = [place, *sandbox.give_up_rights()]
    sender.post(WorkerReady(rights))
    registry = Registry()
    console = Console(sender)
    handler = MessageHandler(registry, sender, console, bytecode)
    Threads(registry, handler, console, sender, shared).run(Receiver(small_socket), Receiver(bulk_socket))
    threading.Event().wait()  # other threads go on


def _empty_environment() -> None:
    """Empty the environment but for TZ: without it local time would be UTC as soon as no file can be read."""
    for name in list(os.environ):
        if name != "TZ":
            del os.environ[name]
