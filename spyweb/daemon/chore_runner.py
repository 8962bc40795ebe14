"""Run periodic chores, and record their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import STORE_REFUSED
from spyweb.logs.output import tell_refusal
from spyweb.ownership import Ownership
from spyweb.stalls import Work, work_for
from spyweb.subjects.health.views import ChoreHealth

log = structlog.get_logger()


class Chore(Struct, frozen=True):
    """A periodic chore of the daemon."""

    name: str
    every_s: float
    do: Callable[[], Awaitable[object]]
    is_common: bool = False  # what it does is done once for all nodes, by the chief


class ChoreRunner:
    """Runs each chore so long after its previous call; one that failed runs again at its next time."""

    def __init__(self, clock: Clock, ownership: Ownership) -> None:
        self._ownership = ownership
        self._clock = clock
        self._account: dict[str, ChoreHealth] = {}

    def health(self) -> list[ChoreHealth]:
        return list(self._account.values())

    async def repeat(self, chore: Chore) -> None:
        """Run a chore again and again, first after one interval."""
        work_for(Work(f"chore '{chore.name}'"))
        self._account[chore.name] = ChoreHealth(name=chore.name, every_s=chore.every_s)
        while True:
            next_at_ms = self._clock.now_ms() + round(chore.every_s * 1000)
            self._account[chore.name] = replace(self._account[chore.name], next_at_ms=next_at_ms)
            await self._clock.sleep(chore.every_s)
            await self.run(chore)

    async def run(self, chore: Chore) -> None:
        """Run a chore once and never raise: this is the boundary of the daemon's background work."""
        if chore.is_common and not self._ownership.is_chief:
            return
        began_ms, began, problem = self._clock.now_ms(), self._clock.monotonic(), ""
        try:
            await chore.do()
        except STORE_REFUSED as error:  # a full or locked disk
            problem = str(error) or type(error).__name__
            tell_refusal("put off", error, chore=chore.name, by_s=chore.every_s)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            log.exception("internal error in a chore", chore=chore.name)
        self._account[chore.name] = ChoreHealth(
            name=chore.name,
            every_s=chore.every_s,
            last_at_ms=began_ms,
            last_took_ms=round((self._clock.monotonic() - began) * 1000),
            error=problem,
        )
