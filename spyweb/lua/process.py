"""One worker's process: its birth, its sockets, and its death, told once, when nothing more can come from it."""

from __future__ import annotations

import socket
from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from spyweb.clock import Clock
from spyweb.errors import PoolError
from spyweb.lua.connection import FlushQueue, WorkerConnection
from spyweb.lua.slots import Slots
from spyweb.lua.spawner import Births, Child, Exit
from spyweb.lua.timeouts import within

log = structlog.get_logger()

READY_LIMIT = 10.0  # seconds from its birth until it says READY: it takes 0.002
MOST_OF_REASON = 200  # characters of what was wrong with a message
DEATH_LIMIT = 1.0  # seconds from SIGKILL, or from the end of its sockets, until it is dead whatever the kernel says


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How a worker died."""

    reason: str
    blameless: bool  # nothing that ran in it is to blame
    stepped: Mapping[int, int]  # the runs that were being stepped, and the CPU that each had used, in ms


class Owner(Protocol):
    """Whose process it is."""

    @property
    def most_bulk(self) -> int: ...

    def received(self, messages: Iterable[list[object]]) -> None: ...

    def died(self, death: Death) -> None: ...


class Process:
    """It may be sent to from the moment it is made: that waits for its birth."""

    def __init__(self, clock: Clock, births: Births, flush_queue: FlushQueue, owner: Owner) -> None:
        loop = get_running_loop()
        self.pid = 0
        self.up: Future[bool] = loop.create_future()  # False: it died before it was ready
        self.dead: Future[None] = loop.create_future()
        self.connection = WorkerConnection(self, flush_queue)
        self._clock = clock
        self._forks = births
        self._owner = owner
        self._slots: Slots | None = None  # made at its birth, which may fail: out of descriptors, of memory
        self._child: Child | None = None  # none yet, or never
        self._open_sockets = 0
        self._is_being_born = False
        self._verdict = ""  # why it was killed
        self._blameless = False
        self._is_heard = True

    async def bring_up(self, delay: float) -> None:
        """Be born, after so many seconds, and get ready."""
        if delay:
            await self._clock.sleep(delay)
        if self.dead.done():
            return
        self._is_being_born = True
        try:
            await self._be_born()
        except (PoolError, OSError) as error:
            self._verdict = self._verdict or str(error)
            self._conclude()
            return
        except CancelledError:
            self._conclude()
            raise
        finally:
            self._is_being_born = False
        if not await within(self._clock, READY_LIMIT, self.up):
            self.kill(f"it was not ready within {READY_LIMIT:.0f} s")

    async def _be_born(self) -> None:
        slots = self._slots = Slots()
        main, their_main = socket.socketpair()
        bulk, their_bulk = socket.socketpair()
        with their_main, their_bulk:
            await self.connection.open(main, bulk)
            self._open_sockets = 2
            child = await self._forks.fork(their_main, their_bulk, slots.descriptor)
        self.pid = child.pid
        self._child = child
        child.exited.add_done_callback(self._exited)
        if self._verdict:  # killed before it was born
            self._clock.call_later(DEATH_LIMIT, self._conclude)
            self._forks.kill(child)

    @property
    def stepped(self) -> Mapping[int, int]:
        """The runs that it is stepping, and the CPU that each has used, in ms."""
        return self._slots.stepped() if self._slots and not self.dead.done() else {}

    def kill(self, reason: str, *, blameless: bool = False) -> None:
        """SIGKILL.  Its death follows, for the first reason given."""
        if self._verdict or self.dead.done():
            return
        self._verdict, self._blameless = reason, blameless
        if self._child is not None:
            self._clock.call_later(DEATH_LIMIT, self._conclude)
            self._forks.kill(self._child)
        elif not self._is_being_born:
            self._conclude()

    @property
    def most_bulk(self) -> int:
        return self._owner.most_bulk

    def received(self, messages: Iterable[list[object]]) -> None:
        if self._is_heard:
            self._owner.received(messages)

    def talked_nonsense(self, error: Exception) -> None:
        if self._is_heard:
            log.error("a worker is killed: it broke the protocol", pid=self.pid, exc_info=error)
        self._is_heard = False
        self.kill(f"it broke the protocol ({str(error)[:MOST_OF_REASON]})")

    def lost(self) -> None:
        """A socket ended: all that came by it has been heard.  The other one follows: the process is dead, or dies."""
        self._open_sockets -= 1
        if self._child is not None:
            self._forks.kill(self._child)
            self._conclude_if_over(self._child)

    def _exited(self, _exit: Future[Exit]) -> None:
        if self._child is not None:
            self._conclude_if_over(self._child)

    def _conclude_if_over(self, child: Child) -> None:
        if self._open_sockets == 0 and child.exited.done():
            self._conclude()
        elif self._open_sockets == 0 or child.exited.done():
            self._clock.call_later(DEATH_LIMIT, self._conclude)

    def _conclude(self) -> None:
        if self.dead.done():
            return
        self.dead.set_result(None)
        self.connection.close()
        if not self.up.done():
            self.up.set_result(False)
        death = self._death()
        if self._slots:
            self._slots.close()
        self._owner.died(death)

    def _death(self) -> Death:
        exited = self._child and self._child.exited
        end = exited.result() if exited and exited.done() else Exit(how="it is gone")
        return Death(
            reason=self._verdict or end.how,
            blameless=self._blameless or end.with_zygote,
            stepped=self._slots.stepped() if self._slots else {},
        )
