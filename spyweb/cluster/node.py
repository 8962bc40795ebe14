"""A node of a cluster: it beats, acts on the answer for as long as it may, and takes and gives slots by it.

Beats and changes of hands are two loops: to take many jobs up may last longer than a lease.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from spyweb.clock import Clock, Handle
from spyweb.cluster.balance import balance
from spyweb.cooperative import set_done, within
from spyweb.errors import StoreError, StoreFenced
from spyweb.logs.output import tell_refusal
from spyweb.ownership import Ownership
from spyweb.scheduler.slots import SlotWork
from spyweb.settings.sections import ClusterSettings
from spyweb.store.model.nodes import Beat
from spyweb.words import counted

if TYPE_CHECKING:
    from spyweb.store.postgres.nodes import Nodes

MARGIN = 0.1  # of its lease, for which a node has stopped acting before others may declare its death
MOST_OFFSET_MS = 1_000  # of a clock; more is warned of
TIMER_S = 0.05  # by which a timer may be early
LEAVING_S = 0.25  # between two beats of a node that ends
MOST_POOLS = 1_000  # each beat reads the owners of all slots

log = structlog.get_logger()


@dataclass(kw_only=True, eq=False)
class ClusterNode:
    """This daemon as a node, once it has joined."""

    nodes: Nodes
    ownership: Ownership
    work: SlotWork
    clock: Clock
    settings: ClusterSettings

    folder: bytes = b""  # a digest of the files of all jobs
    pools: frozenset[str] = frozenset()  # that jobs ask for ...
    wanted: frozenset[str] = frozenset()  # ... and those that are enabled
    last: Beat | None = None
    trouble: str = ""  # why the latest beat was not answered, if it was not
    offset_ms: int = 0  # of PostgreSQL's clock to this machine's
    beaten: Callable[[], object] = int  # called after each beat that was answered ...
    gained: Callable[[], object] = int  # ... and after slots were gained
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # what was free at the start is taken
    _steady_since: float = math.inf  # by `Clock.boottime`: no beat has been late since then
    _is_leaving: bool = False
    _over: StoreFenced | None = None  # why the store refuses what this node writes, if it does
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    _hurry: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _end_of_trust: Handle | None = None

    @property
    def status(self) -> str:
        """Return how this node takes part, for people."""
        if self.trouble or not self.last:
            return f"PostgreSQL does not answer: {self.trouble}"
        owned, slots = len(self.ownership.owned or ()), len(self.last.slots)
        return f"{owned} of {slots} slots, {counted(len(self.last.living), 'node')}"

    async def keep_beating(self) -> None:
        """Beat from now on.  Raises StoreFenced once this node is over."""
        while True:
            if self._hurry.done():
                self._hurry = asyncio.get_running_loop().create_future()
            began = self.clock.boottime()
            self.work.distrust()  # also where the machine was asleep
            trouble = ""
            try:
                if self._over:
                    raise self._over
                await self._beat()
            except StoreFenced:
                self._end()
                raise
            except StoreError as error:
                trouble = str(error)
            if bool(trouble) != bool(self.trouble):
                log.warning("beats are not answered" if trouble else "beats are answered again", reason=trouble)
            self.trouble = trouble
            until = began + (LEAVING_S if self._is_leaving else self.settings.beat_ms / 1000)
            await within(self.clock, max(0.0, until - self.clock.boottime()), self._hurry)

    async def keep_balanced(self) -> None:
        """Take and give slots from now on, by the answer to each beat; begin when the files were loaded."""
        shown = ""
        while True:
            await self._answered.wait()
            self._answered.clear()
            try:
                if self.last and self.ownership.is_trusted:
                    await self._balance(self.last)
                    self.settled.set()
                shown = ""
            except StoreError as error:
                if self._over is None and str(error) != shown:
                    tell_refusal("slots could not change hands yet", error)
                shown = str(error)

    async def leave(self) -> None:
        """Take nothing more, and give each slot as soon as it is idle: the daemon ends."""
        self._is_leaving = True
        with suppress(StoreError):  # else it counts among those that have shares until it has left
            await self.nodes.set_draining(self.nodes.me, True)
        set_done(self._hurry)

    def be_over(self, why: StoreFenced) -> None:
        """Let the loops end: the store has refused a write."""
        self._over = why
        set_done(self._hurry)

    async def _beat(self) -> None:
        sent, sent_ms, before = self.clock.boottime(), self.clock.now_ms(), self.last
        beat = await self.nodes.beat(self.folder, self.offset_ms)
        if before and (beat.timeline != before.timeline or beat.beats <= before.beats):
            await self.nodes.declare(self.nodes.me)  # what the runs of before still write is of no use
            raise StoreFenced("PostgreSQL has failed over, or was restored: this node must join anew")
        self.last = beat
        if not self.ownership.is_trusted:  # late, or the first: PostgreSQL may have been away for all nodes
            self._steady_since = self.clock.boottime()
        self.ownership.trusted_until = sent + self.settings.lease_ms * (1 - MARGIN) / 1000
        if self._end_of_trust:
            self._end_of_trust.cancel()
        left_s = self.ownership.trusted_until - self.clock.boottime()
        self._end_of_trust = self.clock.call_later(left_s + TIMER_S, self.work.distrust)
        took_ms = self.clock.now_ms() - sent_ms
        if took_ms < MOST_OFFSET_MS:  # a later answer says little about the clock
            self._note_offset(beat.now_ms - sent_ms - took_ms // 2)
        if sent - self._steady_since >= self.settings.lease_ms / 1000:
            await self._declare_late(beat)
        self.ownership.nodes = frozenset(node.name for node in self.last.living)
        self._answered.set()
        self.beaten()

    def _end(self) -> None:
        self.ownership.trusted_until = -math.inf
        self.work.lose()

    async def _declare_late(self, beat: Beat) -> None:
        for late in beat.living:
            if late.id != self.nodes.me and beat.now_ms - late.beat_ms > late.lease_ms:
                with suppress(StoreError):  # it writes right now: the next beat finds out more
                    if await self.nodes.declare(late.id):
                        log.warning("a node is dead: others take its jobs over", node=late.name, id=late.id)
                        beat = replace(beat, living=tuple(node for node in beat.living if node.id != late.id))
        self.last = beat

    def _note_offset(self, offset_ms: int) -> None:
        if abs(offset_ms) > MOST_OFFSET_MS >= abs(self.offset_ms):
            log.warning("this machine's clock differs from that of PostgreSQL: is NTP running?", by_ms=-offset_ms)
        self.offset_ms = offset_ms

    async def _balance(self, beat: Beat) -> None:
        owned = self.ownership.owned or set()
        known = {slot.pool for slot in beat.slots}
        if new := sorted(self.pools - known)[: max(0, MOST_POOLS - len(known))]:
            await self.nodes.add_pools(new)  # the next beat shows them
            set_done(self._hurry)
        idle = self.work.idle(owned)
        take, give = balance(beat, self.nodes.me, owned, idle)
        if given := idle.union(give) if self._is_leaving else set(give):
            self.work.release(idle & given)
            await self.nodes.give(given)
            log.info("slots given", slots=len(given), left=len(owned))
        if self._is_leaving:
            return
        taken = await self.nodes.take(take) if take else []
        ids = {beat.slots[slot] for slot in taken} - {None, self.nodes.me}
        died = {node.name for node in await self.nodes.known() if node.id in ids} if ids else ()
        if strays := self.work.strays():
            await self.nodes.take_out(strays)
        await self.work.look(taken, " or ".join(sorted(died)))
        if taken:
            self.gained()
            log.info("slots taken", slots=len(taken), of=len(beat.slots))
