"""Record the stages of a cycle: which ran, how long each took, and what it did to the VM's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from spyweb.clock import Clock
from spyweb.lua import wire
from spyweb.lua.hooks import HOOK_NAMES

HOOK, INTERNAL = "hook", "internal"
SUCCESS, ERROR, INACTIVE = "success", "error", "inactive"

STAGES = {  # in the order of a cycle; those that are no hooks are spyweb's own
    name: HOOK if name in HOOK_NAMES else INTERNAL
    for name in (
        "before_fetch",
        "override_fetch",
        "fetch",
        "after_fetch",
        "override_extract",
        "extract",
        "after_extract",
        "filter_item",
        "filter",
        "before_store",
        "store",
        "before_notify",
        "before_webhook",
        "notify",
        "webhook",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    name: str
    status: str = INACTIVE
    duration_ms: float = 0.0
    memory: int = 0  # bytes of the VM after it
    memory_delta: int = 0
    error: str | None = None

    def shown(self) -> dict[str, object]:
        """Return the stage as scripts see it."""
        shown: dict[str, object] = {
            "name": self.name,
            "status": self.status,
            "type": STAGES[self.name],
            "duration_ms": self.duration_ms,
            "lua_mem_bytes": self.memory,
            "mem_delta_bytes": self.memory_delta,
            "browsers": 0,
        }
        if self.error is not None:
            shown["error"] = self.error
        return shown


class Telemetry:
    """Records the stages of one cycle, which scripts see as `ctx.telemetry`."""

    def __init__(self, job_name: str, clock: Clock, memory: int = 0) -> None:
        self._memory = memory  # bytes of the VM after the last hook: a built-in stage leaves it as it is
        self._job_name = job_name
        self._clock = clock
        self._start_time = clock.now_ms() // 1000  # a whole number: os.date takes nothing else
        self._began = clock.monotonic()
        self._stages: dict[str, Stage] = {}
        self.current = ""  # the stage under way, or the last one

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a built-in stage, and note an error that it raises."""
        self.current = name
        began = self._clock.monotonic()
        try:
            yield
        except Exception as error:
            self.note(self._built_in(name, ERROR, began, str(error)))
            raise
        self.note(self._built_in(name, SUCCESS, began))

    def _built_in(self, name: str, status: str, began: float, error: str | None = None) -> Stage:
        return Stage(name=name, status=status, duration_ms=self.since(began), memory=self._memory, error=error)

    def blame(self, name: str, error: str) -> None:
        """Mark a stage that has ended as failed."""
        self.note(replace(self._stages[name], status=ERROR, error=error))

    def since(self, began: float) -> float:
        return round((self._clock.monotonic() - began) * 1000, 3)

    def note(self, stage: Stage) -> None:
        self._stages[stage.name] = stage
        self._memory = stage.memory

    def stages(self) -> list[Stage]:
        """List all stages, also those that have not run."""
        return [self._stages.get(name) or Stage(name=name) for name in STAGES]

    @property
    def total_ms(self) -> float:
        return self.since(self._began)

    def packed(self) -> bytes:
        """Pack the telemetry for the VM, as each hook gets it."""
        return wire.pack(
            [
                {
                    "job_name": self._job_name,
                    "start_time": self._start_time,
                    "total_duration_ms": self.total_ms,
                    "stages": [stage.shown() for stage in self.stages()],
                }
            ]
        )
