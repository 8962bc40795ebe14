"""Spans that are kept, in the order of their ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from spyweb.tracing.span import NOTHING, Attributes


@dataclass(eq=False)
class FakeSpan:
    name: str
    ended: list[str] = field(default_factory=list)  # "name" or "name: error", of all spans of the trace
    number: int = 1

    @property
    def traceparent(self) -> str:
        return f"00-{'a' * 32}-{self.number:016x}-01"

    def child(self, name: str, attributes: Attributes = NOTHING) -> FakeSpan:
        return FakeSpan(f"{self.name}/{name}", self.ended, self.number + 1)

    def end(self, error: str = "") -> None:
        self.ended.append(f"{self.name}: {error}" if error else self.name)
