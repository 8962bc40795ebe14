"""Keep in mind which incidents are open: every page says so, and they change seldom."""

from __future__ import annotations

from collections.abc import Sequence

from spyweb.store.incidents_protocol import Incidents, OpenIncident, SubjectChange

MOST = 10_000  # the newest; there is no more than one for each job


class OpenIncidents:
    """The open incidents of a store, newest first; read again after each change."""

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents
        self._found: Sequence[OpenIncident] | None = None
        self._changes = 0
        incidents.on_changed(self._take)

    async def look(self) -> Sequence[OpenIncident]:
        """Return them as they are now."""
        if self._found is not None:
            return self._found
        changes = self._changes
        found = await self._incidents.all_open(MOST)
        if changes == self._changes:
            self._found = found
        return found

    def forget(self) -> None:
        """Have them read again: somebody has acknowledged one."""
        self._changes += 1
        self._found = None

    def _take(self, changes: Sequence[SubjectChange]) -> None:
        if any(change.opened or change.closed for change in changes):
            self.forget()
