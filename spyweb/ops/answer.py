"""The results of an op that asks the store one thing and waits for nothing else."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from spyweb.lua.session import Pending

T_co = TypeVar("T_co", covariant=True)
Results = Sequence[object]

NOTHING: Results = ()


class StoreAnswer(Pending, Generic[T_co]):
    """The results of an op, made of a future of the store's by `settle` once it is done.

    It is the source that is waited for and cancelled.
    """

    __slots__ = ("_settle",)

    def __init__(self, source: Future[T_co], settle: Callable[[Future[T_co]], Results]) -> None:
        self.source = source
        self._settle = settle

    def result(self) -> Results:
        return self._settle(self.source)
