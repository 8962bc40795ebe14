"""The requests that have started runs, in dictionaries."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Sequence

from spyweb.model import RunId
from spyweb.settings.units import DAY_MS
from spyweb.store.protocol import End, KnownRequest, NewRun
from tests.fakes.memory.memory_executor import ImmediateExecutor


class MemoryRequests:
    def __init__(self, executor: ImmediateExecutor) -> None:
        self._executor = executor
        self._payloads: dict[RunId, bytes] = {}
        self._known: dict[tuple[str, bytes], KnownRequest] = {}

    def find(self, scope: str, key: bytes) -> Future[KnownRequest | None]:
        return self._executor.read(self._known.get, (scope, key))

    def payload(self, run: RunId) -> Future[bytes | None]:
        return self._executor.read(self._payloads.get, run)

    def keep(self, new: NewRun, run: RunId) -> None:
        if new.payload is not None:
            self._payloads[run] = new.payload
        request = new.request
        if request is not None:
            outdated = [each for each, known in self._known.items() if known.at_ms < request.at_ms - DAY_MS]
            for each in outdated[:2]:
                del self._known[each]
            known = KnownRequest(fingerprint=request.fingerprint, run=run, at_ms=request.at_ms)
            self._known[request.scope, request.key] = known

    def drop_payloads(self, ends: Sequence[End], new: Collection[NewRun]) -> None:
        needed = {run.of_payload for run in new}
        for end in ends:
            if end.of_payload is not None and end.of_payload not in needed:
                self._payloads.pop(end.of_payload, None)
