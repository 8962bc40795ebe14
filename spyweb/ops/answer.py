"""The results of an op that only makes one request to the store."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from spyweb.lua.session import Pending

T_co = TypeVar("T_co", covariant=True)
Results = Sequence[object]

NOTHING: Results = ()


class StoreAnswer(Pending, Generic[T_co]):
    """The results of an op, which `results_of` makes from a future of the store once that is done.

    Waiting and cancelling apply to that future, `source`.
    """

    __slots__ = ("_results_of",)

    def __init__(self, source: Future[T_co], results_of: Callable[[Future[T_co]], Results]) -> None:
        self.source = source
        self._results_of = results_of

    def result(self) -> Results:
        return self._results_of(self.source)
