"""The quick way to answer an op: hand a future of the store on, as the op's results."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, TypeVarTuple

from spyweb.lua.session import Pending

Source = TypeVar("Source")
Ts = TypeVarTuple("Ts")
Results = Sequence[object]

NOTHING: Results = ()


class StoreAnswer(Pending, Generic[Source]):
    """A future of the store's, seen as the results of an op: `settle` makes them of it, and of what else it needs to
    know, once somebody asks.

    It is the source that is waited for and cancelled.
    """

    __slots__ = ("_known", "_settle")

    def __init__(self, source: Future[Source], settle: Callable[[Future[Source], *Ts], Results], *known: *Ts) -> None:
        self.source = source
        self._settle: Callable[..., Results] = settle
        self._known = known

    def result(self) -> Results:
        return self._settle(self.source, *self._known)
