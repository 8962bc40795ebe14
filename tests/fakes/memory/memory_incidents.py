"""Incidents for the store of dictionaries: the real statements, in a database of their own."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from spyweb.incidents.truth import Sign
from spyweb.model import JobId
from spyweb.store.incidents_protocol import (
    AlertChannelNow,
    Incident,
    OpenIncident,
    Planned,
    ScriptTold,
    Silence,
    SubjectChange,
    SubjectEvent,
    SubjectNow,
)
from spyweb.store.outbox_protocol import Channel, NewMessage, Target
from spyweb.store.sqlite import incidents
from spyweb.store.sqlite.migrate import load_migrations, migrate
from spyweb.store.sqlite.pruning import delete
from tests.fakes.memory.memory_executor import ImmediateExecutor
from tests.fakes.memory.memory_outbox import MemoryOutbox

TAKE = "DELETE FROM message RETURNING job, address, payload"


class MemoryIncidents:
    def __init__(self, executor: ImmediateExecutor, outbox: MemoryOutbox) -> None:
        self._executor = executor
        self._outbox = outbox
        self._found: sqlite3.Connection | None = None
        self._callbacks: list[Callable[[Sequence[SubjectChange]], None]] = []

    @property
    def _connection(self) -> sqlite3.Connection:
        """Make the database when somebody asks: few tests do."""
        if self._found is None:
            self._found = sqlite3.connect(":memory:", isolation_level=None)
            migrate(self._found, Path(":memory:"), load_migrations(), self._executor.clock.now_ms())
        return self._found

    def close(self) -> None:
        if self._found is not None:
            self._found.close()

    def note(self, events: Sequence[SubjectEvent]) -> Future[list[SubjectChange]]:
        return self._executor.write(self.ended, events)

    def ended(self, events: Sequence[SubjectEvent]) -> list[SubjectChange]:
        """Note events within another write."""
        if not events:
            return []
        changes = incidents.note(self._connection, events, [])
        for callback in self._callbacks:
            self._executor.later(partial(callback, changes))
        return changes

    def on_changed(self, callback: Callable[[Sequence[SubjectChange]], None]) -> None:
        self._callbacks.append(callback)

    def known(self) -> Future[dict[str, int | None]]:
        return self._executor.read(incidents.find_known, self._connection)

    def signs(self) -> Future[dict[str, Mapping[str, Sign]]]:
        return self._executor.read(incidents.find_signs, self._connection)

    def pausing(self) -> Future[dict[str, int]]:
        return self._executor.read(incidents.find_pausing, self._connection)

    def unsettled(self) -> Future[list[str]]:
        return self._executor.read(incidents.find_unsettled, self._connection)

    async def plan(self, channels: Sequence[AlertChannelNow], subjects: Mapping[str, SubjectNow]) -> Planned:
        return await self._executor.write(self._plan, channels, subjects)

    def _plan(self, channels: Sequence[AlertChannelNow], subjects: Mapping[str, SubjectNow]) -> Planned:
        now_ms = self._executor.clock.now_ms()
        planned = {each.name: incidents.decide(self._connection, each, subjects, now_ms) for each in channels}
        for channel, telling in planned.items():
            incidents.tell(self._connection, channel, telling, now_ms)
        incidents.settle(self._connection, incidents.find_told_to_all(self._connection, channels, subjects))
        rows = sorted(self._connection.execute(TAKE).fetchall(), key=lambda row: msgspec.json.decode(row[2])["at_ms"])
        self._outbox.add(
            [
                NewMessage(job=JobId(job), target=Target(Channel.ALERT, address), payload=payload)
                for job, address, payload in rows
            ]
        )
        return Planned(
            messages=sum(len(each.messages) for each in planned.values()),
            wake_ms=min((each.wake_ms for each in planned.values() if each.wake_ms is not None), default=None),
            unknown=tuple(name for name in incidents.find_unsettled(self._connection) if name not in subjects),
        )

    def for_scripts(self, subjects: Sequence[str]) -> Future[list[Incident]]:
        return self._executor.read(incidents.find_for_scripts, self._connection, subjects)

    def tell_scripts(self, told: Sequence[ScriptTold]) -> None:
        """Note what scripts know within another write."""
        if told:
            incidents.tell_scripts(self._connection, told)

    def acknowledge(self, incident: int, by: str) -> Future[bool]:
        return self._executor.write(
            incidents.acknowledge, self._connection, incident, by, self._executor.clock.now_ms()
        )

    def silence(self, subject: str, for_ms: int | None, by: str) -> Future[None]:
        now_ms = self._executor.clock.now_ms()
        return self._executor.write(incidents.silence, self._connection, subject, for_ms, by, now_ms)

    def silence_of(self, subject: str) -> Future[Silence | None]:
        return self._executor.read(incidents.find_silence, self._connection, subject)

    def all_open(self, limit: int) -> Future[list[OpenIncident]]:
        return self._executor.read(incidents.find_all_open, self._connection, limit)

    def list(
        self,
        *,
        is_open: bool | None = None,
        subject: str | None = None,
        since_ms: int | None = None,
        before: int | None = None,
        limit: int = 30,
    ) -> Future[list[Incident]]:
        beyond = before or incidents.BEYOND_ALL
        return self._executor.read(
            incidents.find_incidents, self._connection, is_open, subject, since_ms or 0, beyond, limit
        )

    def get(self, incident: int) -> Future[Incident | None]:
        return self._executor.read(incidents.find_incident, self._connection, incident)

    def open_among(self, subjects: Collection[str]) -> Future[dict[str, int]]:
        return self._executor.read(incidents.find_open_among, self._connection, tuple(subjects))

    async def prune(self, *, older_than_ms: int) -> int:
        outdated = await self._executor.read(incidents.find_outdated, self._connection, older_than_ms)
        await self._executor.write(delete, self._connection, incidents.DELETE, outdated)
        return len(outdated)
