"""Record the stages of a cycle: which ran, how long each took, and what it did to the VM's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.lua import wire
from spyweb.lua.hooks import HOOK_NAMES

STAGES = (  # in the order of a cycle; those that are not hooks are built in
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


class Stage(Struct, frozen=True):
    """One step of a cycle: the time and memory that it took, and its error."""

    name: str
    duration_ms: float | None = None  # None: it has not run
    memory: int = 0  # bytes of the VM after it
    memory_delta: int = 0
    error: str | None = None

    def shown(self) -> dict[str, object]:
        """Return the stage as scripts see it."""
        shown: dict[str, object] = {
            "name": self.name,
            "status": "error" if self.error is not None else "inactive" if self.duration_ms is None else "success",
            "type": "hook" if self.name in HOOK_NAMES else "internal",
            "duration_ms": self.duration_ms or 0.0,
            "lua_mem_bytes": self.memory,
            "mem_delta_bytes": self.memory_delta,
            "browsers": 0,
        }
        return shown if self.error is None else {**shown, "error": self.error}


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
        began, error = self._clock.monotonic(), None
        try:
            yield
        except Exception as failure:
            error = str(failure)
            raise
        finally:
            self.note(Stage(name, self._since(began), self._memory, error=error))

    def blame(self, name: str, error: str) -> None:
        """Mark a stage that has ended as failed."""
        self.note(replace(self._stages[name], error=error))

    def _since(self, began: float) -> float:
        return round((self._clock.monotonic() - began) * 1000, 3)

    def note(self, stage: Stage) -> None:
        self._stages[stage.name] = stage
        self._memory = stage.memory

    def stages(self) -> list[Stage]:
        """List all stages, also those that have not run."""
        return [self._stages.get(name) or Stage(name) for name in STAGES]

    @property
    def total_ms(self) -> float:
        return self._since(self._began)

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
