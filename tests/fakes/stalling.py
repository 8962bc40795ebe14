"""Make a recorder of stalls on clocks that a test turns."""

from __future__ import annotations

from dataclasses import dataclass, field

from spyweb.stalls import Stall, StallRecorder


@dataclass
class StallClocks:
    """Holds what the two clocks show, in seconds."""

    wall: float = 0.0
    cpu: float = 0.0
    stalls: list[Stall] = field(default_factory=list)

    def compute(self, seconds: float) -> None:
        """Let the loop's thread use the processor for so long."""
        self.wall += seconds
        self.cpu += seconds

    def wait(self, seconds: float) -> None:
        """Let the loop's thread wait, for the processor or a device."""
        self.wall += seconds

    def recorder(self) -> StallRecorder:
        recorder = StallRecorder(cpu_time=lambda: self.cpu, wall=lambda: self.wall)
        recorder.listen = self.stalls.append
        return recorder
