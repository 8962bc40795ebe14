"""The audit trail in a list."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from dataclasses import asdict

from spyweb.store.audit_protocol import LINES_KEPT, AuditLine, NewAuditLine
from tests.fakes.memory.memory_executor import ImmediateExecutor


class MemoryAudit:
    def __init__(self, executor: ImmediateExecutor) -> None:
        self._executor = executor
        self._lines: deque[AuditLine] = deque(maxlen=LINES_KEPT)

    def add(self, line: NewAuditLine) -> Future[None]:
        return self._executor.write(self._add, line)

    def _add(self, line: NewAuditLine) -> None:
        last = self._lines[-1].id if self._lines else 0
        self._lines.append(AuditLine(id=last + 1, **asdict(line)))

    def _list(self, limit: int, before: int | None) -> list[AuditLine]:
        older = [line for line in reversed(self._lines) if before is None or line.id < before]
        return older[:limit]

    def list(self, *, limit: int, before: int | None = None) -> Future[list[AuditLine]]:
        return self._executor.read(self._list, limit, before)
