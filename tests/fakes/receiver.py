"""A fake receiver of messages, which answers each attempt as it was told beforehand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from spyweb.outbox.send import DeliveryFailure
from spyweb.store.model.messages import QueuedMessage, Target

Answer = DeliveryFailure | Exception | None
DOWN = DeliveryFailure(reason="connect: refused")
REFUSED = DeliveryFailure(reason="answered 400", holds=False, is_refused=True)


@dataclass(slots=True)
class Receiver:
    """Keeps the messages that came, and when."""

    now_ms: Callable[[], int]
    answers: dict[Target, Callable[[QueuedMessage], Answer]] = field(default_factory=dict)  # others take everything
    hung: set[Target] = field(default_factory=set)  # never answer
    attempts: list[tuple[int, str]] = field(default_factory=list)  # (when, payload)
    arrived: list[str] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)

    async def send(self, message: QueuedMessage) -> DeliveryFailure | None:
        payload = message.payload.decode()
        self.attempts.append((self.now_ms(), payload))
        self.deliveries.append(message.delivery)
        if message.target in self.hung:
            await asyncio.get_running_loop().create_future()
        answering = self.answers.get(message.target)
        answer = answering(message) if answering else None
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            self.arrived.append(payload)
        return answer

    def times_of(self, payload: str) -> list[int]:
        return [at_ms for at_ms, sent in self.attempts if sent == payload]


def in_turn(*answers: Answer) -> Callable[[QueuedMessage], Answer]:
    """Give these answers one after the other, then accept everything."""
    left = list(answers)
    return lambda _: left.pop(0) if left else None
