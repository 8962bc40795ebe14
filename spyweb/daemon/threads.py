"""The threads in which the event loop has waited for what it can't wait for itself: the disk, mostly."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

NAME = "spyweb"


class Threads(ThreadPoolExecutor):
    """As the loop's own.  But where the system has no thread left, what is to be done waits for one of those there are.

    The loop's own raises a RuntimeError, does it all the same, and whoever asked ends with the whole daemon.
    """

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


async def prepare_threads() -> None:
    """For all that waits in threads from now on, be it an `asyncio.to_thread` or a connection that is made."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Threads(thread_name_prefix=NAME))
    # uvloop has threads of its own for addresses, even where they are numbers.  libuv starts them when they are first
    # needed, and aborts the process when it can't: so while there is nothing to lose.
    await loop.getaddrinfo("127.0.0.1", 0)
