"""What a VM calls when no worker is around it."""

from __future__ import annotations


class FakeCallbacks:
    def __init__(self) -> None:
        self.reason = 0  # why the run being stepped must end (wire.Why)
        self.lines: list[tuple[bytes, bytes]] = []  # level, text

    def why(self) -> int:
        return self.reason

    def emit(self, level: bytes, text: bytes) -> int:
        self.lines.append((level, text))
        return 0
