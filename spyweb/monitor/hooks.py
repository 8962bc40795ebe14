"""A cycle's hooks, as the stages see them: is there one, what did it say.

What a hook may say: a value that makes sense, nothing (nil or false), or it failed; and it may be absent.  Which of
these ends the cycle is each stage's own rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol


class NoValue(Enum):
    ABSENT = "absent"  # there is no such hook
    NOTHING = "nothing"  # nil or false


ABSENT: Final = NoValue.ABSENT
NOTHING: Final = NoValue.NOTHING


@dataclass(frozen=True, slots=True)
class Failed:
    """The hook raised, or returned what makes no sense."""

    error: str
    value: object = None  # what it came to all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """What became of one call."""

    value: object = None  # what the hook returned
    error: str | None = None  # it raised: the text, with file and line
    traceback: str = ""
    where: str = ""  # `file:line` where a hook begins that returned a value
    is_absent: bool = False  # it was there, and is no more
    duration_ms: float = 0.0
    memory: int = 0  # bytes of the VM after it
    memory_delta: int = 0


@dataclass(frozen=True, slots=True)
class ContextUpdate:
    """What `ctx` learns before a hook is called."""

    now: Mapping[str, object]
    later: Mapping[str, bytes]  # packed values, decoded when a script looks


class Hooks(Protocol):
    @property
    def exist(self) -> bool:
        """Whether there is a VM at all."""

    def has(self, name: str) -> bool:
        """Whether it is a function now."""

    async def call(self, name: str, argument: object, news: ContextUpdate) -> HookResult: ...


class NoHooks:
    """Of a job without Lua."""

    exist = False

    def has(self, name: str) -> bool:
        return False

    async def call(self, name: str, argument: object, news: ContextUpdate) -> HookResult:
        raise AssertionError(name)
