"""A worker process, from its fork to its end: gives up its rights, says so, and works until its daemon is gone."""

from __future__ import annotations

import gc
import os
import socket
import sys

from spyweb.confined import sandbox
from spyweb.confined.parent import stand_behind_parent
from spyweb.lua.wire import FromWorker
from spyweb.lua.worker import priority
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Post
from spyweb.lua.worker.message_handler import MessageHandler
from spyweb.lua.worker.runs import Registry
from spyweb.lua.worker.slots import ThreadSlots
from spyweb.lua.worker.threads import Threads
from spyweb.lua.worker.vm import Bytecode

_SWITCH = 0.0005  # seconds; a thread back from Lua waits that long for one that is in Python, 5 ms by default
_GARBAGE = 50_000  # objects between two looks for cycles, of which there are few here


def work(small: int, bulk: int, slots: int, bytecode: Bytecode) -> None:
    """Takes over three descriptors: both sockets and the shared memory.  Never returns."""
    sys.setswitchinterval(_SWITCH)
    gc.set_threshold(_GARBAGE)
    _empty_environment()
    shared = ThreadSlots(slots)
    os.close(slots)
    post = Post(socket.socket(fileno=small), socket.socket(fileno=bulk))
    place = stand_behind_parent(priority.BEHIND)
    priority.let_others_ask()
    rights = [place, *sandbox.give_up_rights()]
    post.sender.post([int(FromWorker.READY), {"rights": rights}])
    registry = Registry()
    console = Console(post.sender)
    handler = MessageHandler(registry, post.sender, console, bytecode)
    Threads(registry, post, handler, console, shared).run()


def _empty_environment() -> None:
    """TZ stays: without it local time would become UTC as soon as no file can be looked at."""
    for name in list(os.environ):
        if name != "TZ":
            del os.environ[name]
