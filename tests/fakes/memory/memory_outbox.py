"""The outbox of messages in a dictionary."""

from __future__ import annotations

import secrets
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from spyweb.model import JobId
from spyweb.store.outbox_protocol import Backlog, Channel, NewMessage, QueuedMessage, Target, TargetBacklog
from tests.fakes.memory.memory_executor import ImmediateExecutor
from tests.fakes.memory.memory_records import MemoryRecords


@dataclass(slots=True)
class Kept:
    message: QueuedMessage
    holds: bool = True


class MemoryOutbox:
    def __init__(self, executor: ImmediateExecutor, records: MemoryRecords) -> None:
        self._executor = executor
        self._records = records
        self._kept: dict[int, Kept] = {}  # oldest first
        self._last_id = 0
        self._callbacks: list[Callable[[Sequence[Target]], None]] = []

    def add(self, messages: Sequence[NewMessage], *, settles: Sequence[int] = ()) -> Future[list[int]]:
        return self._executor.write(self._add, messages, settles)

    def on_added(self, callback: Callable[[Sequence[Target]], None]) -> None:
        self._callbacks.append(callback)

    def targets(self) -> Future[list[Target]]:
        return self._executor.read(lambda: sorted({message.target for message in self._waiting()}))

    def next(self, target: Target, now_ms: int) -> Future[QueuedMessage | None]:
        return self._executor.read(self._next, target, now_ms)

    def done(self, message: int) -> Future[None]:
        return self._executor.write(self._drop, message)

    def put_off(self, message: int, *, next_ms: int, error: str, holds: bool) -> Future[None]:
        return self._executor.write(self._put_off, message, next_ms, error, holds)

    def give_up(self, message: int, *, error: str) -> Future[None]:
        return self._executor.write(self._give_up, message, error)

    def unsent(self, job: JobId | None, limit: int, *, before: int | None = None) -> Future[list[QueuedMessage]]:
        return self._executor.read(self._unsent, job, limit, before)

    def retry(self, message: int | None) -> Future[list[int]]:
        return self._executor.write(self._retry, message)

    def count_dead(self) -> Future[int]:
        return self._executor.read(lambda: sum(kept.message.dead_ms is not None for kept in self._kept.values()))

    def backlog(self) -> Future[Backlog]:
        return self._executor.read(self._backlog)

    def backlogs(self, channel: Channel) -> Future[dict[str, TargetBacklog]]:
        return self._executor.read(self._backlogs, channel)

    def _backlog(self) -> Backlog:
        made = [message.created_ms for message in self._waiting()]
        return Backlog(len(made), min(made, default=None))

    async def prune(self, *, older_than_ms: int) -> int:
        return await self._executor.write(self._prune, older_than_ms)

    def _add(self, messages: Sequence[NewMessage], settles: Sequence[int]) -> list[int]:
        self._records.settle(settles)
        return self.put(messages)

    def put(self, messages: Sequence[NewMessage]) -> list[int]:
        """Add messages, in somebody else's transaction."""
        self._tell(tuple(message.target for message in messages))
        return [self._add_one(message) for message in messages]

    def _add_one(self, new: NewMessage) -> int:
        for older in self._waiting() if new.target.channel is Channel.PING else ():
            if (older.target, older.headers) == (new.target, new.headers):
                del self._kept[older.id]
        self._last_id += 1
        now_ms = self._executor.clock.now_ms()
        message = QueuedMessage(
            id=self._last_id,
            delivery=secrets.token_hex(16),
            job=new.job,
            target=new.target,
            payload=new.payload,
            headers=new.headers,
            created_ms=now_ms,
            next_ms=now_ms,
        )
        self._kept[message.id] = Kept(message)
        return message.id

    def _backlogs(self, channel: Channel) -> dict[str, TargetBacklog]:
        found: dict[str, TargetBacklog] = {}
        for message in self._waiting():
            address = message.target.address
            if message.target.channel is channel:
                oldest = found.get(address, TargetBacklog(0, message.created_ms, message.error))
                found[address] = oldest._replace(waiting=oldest.waiting + 1)
        return found

    def find(self, message: int) -> QueuedMessage | None:
        kept = self._kept.get(message)
        return kept.message if kept else None

    def place(self, message: QueuedMessage, holds: bool, earlier: int | None) -> int:
        """Put a message of another database here, in place of an earlier version of it."""
        if earlier is None:
            self._last_id += 1
            self._tell((message.target,))
        number = earlier or self._last_id
        self._kept[number] = Kept(replace(message, id=number), holds)
        return number

    def _waiting(self) -> list[QueuedMessage]:
        return [kept.message for kept in self._kept.values() if kept.message.dead_ms is None]

    def _next(self, target: Target, now_ms: int) -> QueuedMessage | None:
        waiting = [message for message in self._waiting() if message.target == target]
        in_turn = (message for message in waiting if self._kept[message.id].holds or message.next_ms <= now_ms)
        return next(in_turn, None) or min(waiting, key=lambda message: message.next_ms, default=None)

    def _drop(self, message: int) -> None:
        self._kept.pop(message, None)

    def _put_off(self, message: int, next_ms: int, error: str, holds: bool) -> None:
        if kept := self._kept.get(message):
            kept.holds = holds
            kept.message = replace(kept.message, next_ms=next_ms, error=error, attempts=kept.message.attempts + 1)

    def _give_up(self, message: int, error: str) -> None:
        if kept := self._kept.get(message):
            now_ms = self._executor.clock.now_ms()
            kept.message = replace(kept.message, error=error, attempts=kept.message.attempts + 1, dead_ms=now_ms)

    def _unsent(self, job: JobId | None, limit: int, before: int | None) -> list[QueuedMessage]:
        found = (kept.message for kept in reversed(self._kept.values()) if job in (None, kept.message.job))
        return list(islice((each for each in found if before is None or each.id < before), limit))

    def _retry(self, message: int | None) -> list[int]:
        now_ms, chosen = self._executor.clock.now_ms(), [each for each in self._kept if message in (None, each)]
        for number in chosen:
            kept = self._kept[number]
            if kept.message.dead_ms is not None:
                kept.message = replace(kept.message, created_ms=now_ms, attempts=0, dead_ms=None)
            kept.message, kept.holds = replace(kept.message, next_ms=now_ms), True
        targets = tuple(dict.fromkeys(self._kept[number].message.target for number in chosen))
        self._tell(targets)
        return chosen

    def _tell(self, targets: Sequence[Target]) -> None:
        for callback in self._callbacks:
            self._executor.later(partial(callback, targets))

    def _prune(self, older_than_ms: int) -> int:
        dying = [(number, kept.message.dead_ms) for number, kept in self._kept.items()]
        dead = [number for number, dead_ms in dying if dead_ms is not None and dead_ms < older_than_ms]
        for number in dead:
            del self._kept[number]
        return len(dead)
