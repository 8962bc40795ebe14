"""Tell whether the daemon is ready, by having each part prove that it makes progress.

The writer is asked to commit nothing, behind what it has to do.  However often somebody asks, that happens once a
second.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable

from spyweb.clock import Clock
from spyweb.cooperative import within
from spyweb.store.sqlite.store import Store
from spyweb.views.health import Readiness, Vitals, view_readiness
from spyweb.web.services import STARTING

KEPT_S = 1.0  # how long an answer holds
PATIENCE_S = 2.0  # for the writer: less than any prober waits

STOPPING = "the daemon is stopping"


class ReadinessService:
    """Answers probes; one of several at once asks, the others wait for its answer."""

    def __init__(self, *, store: Store, clock: Clock, vitals: Callable[[], Vitals]) -> None:
        self.stage = STARTING  # what keeps the daemon from being ready, whatever its parts do
        self._store = store
        self._clock = clock
        self._vitals = vitals
        self._lock = Lock()
        self._seen: tuple[float, Vitals, str] | None = None  # when, and what was wrong with the probe

    async def look(self) -> Readiness:
        async with self._lock:
            if self._seen is None or self._clock.monotonic() - self._seen[0] >= KEPT_S:
                probe = await self._probe_the_writer()
                self._seen = self._clock.monotonic(), self._vitals(), probe
            _, vitals, probe = self._seen
        return view_readiness(vitals, stage=self.stage, probe=probe)

    async def _probe_the_writer(self) -> str:
        """Return what is wrong; empty where the writer has answered."""
        probe = self._store.probe()
        if not await within(self._clock, PATIENCE_S, probe):
            probe.cancel()
            return f"the writer has not answered within {PATIENCE_S:.0f} s"
        error = probe.exception()
        return "" if error is None else f"nothing is stored: {type(error).__name__}"
