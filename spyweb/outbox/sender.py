"""Sends the messages of the outbox: each is attempted until it is delivered, or is too old.

There is one task for each target, so a target that hangs or is down delays no other.  Messages to one target are sent
one after the other, in their order; while the target fails the messages behind wait, but a message that it refuses is
skipped.  A message is deleted from the store only after its delivery: after a crash it may be sent again, with the same
X-SpyWeb-Delivery.  The result of an attempt is kept until the store accepts it; until then its target gets nothing.

In a cluster each target lies in a slot, and the owner of that sends its messages; a desktop is that of its node, and
pings go with their job, since they have lines of its log.
"""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import structlog
from msgspec import Struct, field

from spyweb.clock import Clock, Handle
from spyweb.errors import STORE_REFUSED
from spyweb.logs.output import until_accepted
from spyweb.model import JobId, Retry
from spyweb.outbox.send import DeliveryFailure, Send, place_of
from spyweb.ownership import Slot, slot_of
from spyweb.runs.followups import retry_delay_ms
from spyweb.runs.live import LiveJobs
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_duration
from spyweb.store.model.messages import Backlog, Channel, QueuedMessage, Target
from spyweb.store.sqlite.outbox import Outbox

log = structlog.get_logger()

# The age at which the last attempt to send a message is made.
LIFE_MS = {Channel.WEBHOOK: DAY_MS, Channel.DESKTOP: 5 * MINUTE_MS, Channel.ALERT: DAY_MS, Channel.PING: HOUR_MS}
BACKOFF = Retry(delay_ms=2 * SECOND_MS, max_delay_ms=MINUTE_MS)  # doubled each time, with full jitter
LATER_BACKOFF = Retry(delay_ms=2 * SECOND_MS, max_delay_ms=5 * MINUTE_MS)  # once an hour has not helped
REFUSED_DELAYS_MS = (MINUTE_MS, 3 * MINUTE_MS, 6 * MINUTE_MS)  # between tries of a refused message
LONGEST_RETRY_AFTER_MS = 15 * MINUTE_MS  # the longest Retry-After that is followed
LONGEST_WAIT_MS = MINUTE_MS  # then the local time is read again: it may have been set
MOST_AT_ONCE = 1_000  # messages of one job that `send_due` reads
PATIENCE = 5.0  # seconds before the next try after the store refused
REFUSED = "messages could not be sent yet"


MessageListener = Callable[[JobId, int, Literal["sent", "put off", "given up"], str], None]  # of a job; why


def slot_of_target(target: Target) -> Slot:
    return slot_of(f"{target.channel.value}:{target.address}")


class TargetQueue(Struct):
    """Holds the state of one target: its failed attempts, and the last attempt until it is stored."""

    target: Target
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    misses: int = 0  # attempts in a row that failed because of the target, not of a message
    missed_since_ms: int = 0  # the first of them
    refusals: dict[int, int] = field(default_factory=dict)  # message -> how often in a row it was refused
    is_sending: bool = False
    attempted: tuple[QueuedMessage, DeliveryFailure | None] | None = None  # the last attempt, until the store has it


@dataclass(kw_only=True, eq=False)
class OutboxSender:
    """Sends messages for as long as `deliver` runs."""

    outbox: Outbox
    send: Send
    clock: Clock
    random: Callable[[], float]
    live: LiveJobs

    def __post_init__(self) -> None:
        self._tasks: TaskGroup | None = None
        self._queues: dict[Target, TargetQueue] = {}
        self._stopped = False
        self._attempted = asyncio.Event()
        self._others = asyncio.Event()  # set when there may be messages that were added or left by others
        self.dead = 0  # messages that were given up and are kept
        self.listener: MessageListener | None = None  # called after each attempt, while a client follows the events
        self.outbox.on_committed(self._take)
        self.ownership = self.live.ownership

    async def deliver(self) -> None:
        """Send the messages of the outbox, also later ones, until cancelled."""
        async with TaskGroup() as tasks:
            self._tasks = tasks
            try:
                while True:
                    self._others.clear()
                    await until_accepted(self.clock, PATIENCE, REFUSED, self._take_up)
                    await self._others.wait()
            finally:
                self._tasks = None

    def look(self) -> None:
        """Look soon for messages of which this daemon has not heard."""
        self._others.set()

    async def wind_down(self, seconds: float) -> None:
        """Begin no more attempts, and wait at most that long for those under way."""
        self._stopped = True
        ends = self.clock.monotonic() + seconds
        while any(queue.is_sending for queue in self._queues.values()) and self.clock.monotonic() < ends:
            self._attempted.clear()
            alarm = self.clock.call_later(ends - self.clock.monotonic(), self._attempted.set)
            await self._attempted.wait()
            alarm.cancel()

    async def due(self, job: JobId) -> list[QueuedMessage]:
        """List the messages of a job that are due now."""
        now_ms = self.clock.now_ms()
        unsent = await self.outbox.unsent(job, MOST_AT_ONCE)
        return [message for message in unsent if message.dead_ms is None and message.next_ms <= now_ms]

    async def send_due(self, job: JobId, seconds: float) -> None:
        """Send the messages of a job that are due now, for at most that long, where `deliver` does not run.

        The rest stays for later, and so do messages behind one of another job, since their order is kept.
        """
        targets = {message.target for message in await self.due(job)}
        alarms: list[Handle] = []
        async with TaskGroup() as tasks:
            for target in targets:
                task = tasks.create_task(self._send_due(job, TargetQueue(target)), name=f"send to {place_of(target)}")
                alarms.append(self.clock.call_later(seconds, task.cancel))
        for alarm in alarms:
            alarm.cancel()

    async def _send_due(self, job: JobId, queue: TargetQueue) -> None:
        try:
            while (message := await self.outbox.next(queue.target, self.clock.now_ms())) is not None:
                if message.next_ms > self.clock.now_ms() or message.job != job:
                    return
                await self._attempt(queue, message)
        except STORE_REFUSED as error:
            log.error("messages are left for the daemon", to=place_of(queue.target), reason=str(error))

    async def unsent(self, job: JobId | None, limit: int, *, before: int | None = None) -> list[QueuedMessage]:
        """List the undelivered messages with ids below `before`, newest first."""
        return await self.outbox.unsent(job, limit, before=before)

    async def counts(self) -> Backlog:
        return await self.outbox.backlog()

    async def retry(self, message: int | None) -> list[int]:
        """Send this message, or all, now; return their ids."""
        found = await self.outbox.retry(message)
        self.dead = (await self.outbox.backlog()).dead
        return found

    async def prune(self, older_than_ms: int) -> None:
        """Delete the messages that were given up before that moment."""
        await self.outbox.prune(older_than_ms=older_than_ms)
        self.dead = (await self.outbox.backlog()).dead

    async def _take_up(self) -> None:
        """Queue the messages that an earlier daemon left, or that another node has added."""
        self.dead = (await self.outbox.backlog()).dead
        self._take(await self.outbox.targets())

    def _take(self, targets: Sequence[Target]) -> None:
        for target in targets:
            queue = self._queues.get(target)
            if queue:
                queue.woken.set()
            elif self._tasks and self._is_mine(target):
                self._queues[target] = queue = TargetQueue(target)
                self._tasks.create_task(self._serve(queue), name=f"send to {place_of(target)}")

    def _is_mine(self, target: Target) -> bool:
        if self.ownership.owned is None:
            return True
        if target.channel is Channel.DESKTOP and target.address:
            return target.address == self.ownership.node
        if target.channel is Channel.PING:
            return self.live.is_mine(JobId(target.address))
        return self.ownership.has(slot_of_target(target))

    def busy_slots(self) -> set[Slot]:
        """Return the slots of targets to which something is being sent."""
        return {slot_of_target(queue.target) for queue in self._queues.values() if queue.is_sending}

    async def _serve(self, queue: TargetQueue) -> None:
        """Send the messages of one target until none waits, or another node does that."""
        while queue.target in self._queues and not self._stopped and self._is_mine(queue.target):
            await until_accepted(self.clock, PATIENCE, REFUSED, partial(self._step, queue))
        self._queues.pop(queue.target, None)

    async def _step(self, queue: TargetQueue) -> None:
        """Make the next attempt or wait until it is due; drop the queue once nothing waits."""
        if queue.attempted:  # the store refused its result before
            await self._note_attempt(queue, *queue.attempted)
            return
        queue.woken.clear()
        now_ms = self.clock.now_ms()
        message = await self.outbox.next(queue.target, now_ms)
        if message is None:
            if not queue.woken.is_set():  # a message may have been added while the store was read
                del self._queues[queue.target]
        elif now_ms < message.next_ms <= now_ms + LONGEST_RETRY_AFTER_MS:  # later only where the clock was set back
            wait_ms = min(message.next_ms - now_ms, LONGEST_WAIT_MS)
            alarm = self.clock.call_later(wait_ms / 1000, queue.woken.set)  # unless another message is added before
            try:
                await queue.woken.wait()
            finally:
                alarm.cancel()
        elif not self.ownership.is_trusted:
            await self.clock.sleep(PATIENCE)
        elif not self._stopped and self._is_mine(queue.target):
            await self._attempt(queue, message)

    async def _attempt(self, queue: TargetQueue, message: QueuedMessage) -> None:
        queue.is_sending = True
        try:
            try:
                failure = await self.send(message)
            except Exception as error:  # the boundary of one message: an internal error must not end all sending
                log.error("internal error in sending", job=message.job, to=place_of(message.target), exc_info=error)
                failure = DeliveryFailure(reason="internal error (see the log)", holds=False)
            queue.misses = queue.misses + 1 if failure and failure.holds else 0
            if queue.misses == 1:
                queue.missed_since_ms = self.clock.now_ms()
            if failure and failure.is_refused:
                queue.refusals[message.id] = queue.refusals.get(message.id, 0) + 1
            else:
                queue.refusals.pop(message.id, None)
            queue.attempted = message, failure
            await self._note_attempt(queue, message, failure)
        finally:
            queue.is_sending = False
            self._attempted.set()

    async def _note_attempt(self, queue: TargetQueue, message: QueuedMessage, failure: DeliveryFailure | None) -> None:
        """Record the result of an attempt: the message is done, given up, or put off."""
        ends_ms = message.created_ms + LIFE_MS[message.target.channel]
        refusals = queue.refusals.get(message.id, 0)
        if failure is None:
            await self.outbox.done(message.id)
            self._tell(message, "sent")
        elif self.clock.now_ms() >= ends_ms or refusals > len(REFUSED_DELAYS_MS):
            queue.refusals.pop(message.id, None)
            if message.target.channel is Channel.PING:
                await self.outbox.done(message.id)  # a late ping is useless: the watcher has noticed its absence
            else:
                await self.outbox.give_up(message.id, error=failure.reason)
                self.dead += 1
            self._tell(message, "given up", failure.reason)
            attempts = message.attempts + 1
            log.error("a message was given up", **about(message), reason=failure.reason, attempts=attempts)
        else:
            await self._put_off(queue, message, failure, ends_ms)
        queue.attempted = None

    async def _put_off(
        self, queue: TargetQueue, message: QueuedMessage, failure: DeliveryFailure, ends_ms: int
    ) -> None:
        now_ms = self.clock.now_ms()
        if refusals := queue.refusals.get(message.id):
            delay_ms = REFUSED_DELAYS_MS[refusals - 1]
        else:
            since_ms = min(message.created_ms, queue.missed_since_ms) if queue.misses else message.created_ms
            backoff = BACKOFF if now_ms - since_ms < HOUR_MS else LATER_BACKOFF
            delay_ms = retry_delay_ms(backoff, max(message.attempts + 1, queue.misses), self.random)
        next_ms = min(now_ms + max(delay_ms, min(failure.wait_ms, LONGEST_RETRY_AFTER_MS)), ends_ms)
        await self.outbox.put_off(message.id, next_ms=next_ms, error=failure.reason, holds=failure.holds)
        self._tell(message, "put off", failure.reason)
        if message.attempts == 0:
            again_in = format_duration(next_ms - now_ms)
            log.warning("a message was not delivered yet", **about(message), reason=failure.reason, again_in=again_in)

    def _tell(self, message: QueuedMessage, what: Literal["sent", "put off", "given up"], reason: str = "") -> None:
        if self.listener:
            self.listener(message.job, message.id, what, reason)


def about(message: QueuedMessage) -> dict[str, object]:
    return {"job": message.job, "channel": message.target.channel.value, "to": place_of(message.target)}
