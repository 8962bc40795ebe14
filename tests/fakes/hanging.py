"""A store that answers when the test says so: as on a disk that hangs, or while another process has locked it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field

from spyweb.errors import StoreError
from spyweb.model import RunId
from spyweb.store.model.runs import Change
from tests.fakes.clock import settle

Answer = Future[list[RunId | None]]


@dataclass(slots=True)
class HangingRecord:
    """Replaces a store's `record`: calls wait, in their order, to be granted or refused."""

    record: Callable[[Change], Answer]
    asked: list[tuple[Change, Answer]] = field(default_factory=list)

    def __call__(self, change: Change) -> Answer:
        answer: Answer = Future()
        self.asked.append((change, answer))
        return answer

    async def grant(self) -> None:
        """Carry out the calls that wait, and those that follow from them."""
        while self.asked:
            change, answer = self.asked.pop(0)
            answer.set_result(await self.record(change))
            await settle()

    async def refuse(self) -> None:
        while self.asked:
            self.asked.pop(0)[1].set_exception(StoreError("another process has locked the database"))
        await settle()
