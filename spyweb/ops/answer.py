"""The quick way to answer an op: hand a future of the store on, as the op's results."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from spyweb.lua.session import Pending

Source = TypeVar("Source")
Results = Sequence[object]

NOTHING: Results = ()


class Answer(Pending, Generic[Source]):
    """A future of the store's, seen as the results of an op: `settle` makes them once somebody asks.

    It is the source that is waited for and cancelled.
    """

    __slots__ = ("_settle",)

    def __init__(self, source: Future[Source], settle: Callable[[Future[Source]], Results]) -> None:
        self.source = source
        self._settle = settle

    def result(self) -> Results:
        return self._settle(self.source)
