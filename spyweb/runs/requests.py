"""Requests to the runner, for one run of a job or for all that has come due of it, and the claims they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from spyweb.model import Cursor, Ending, Run, TriggerType
from spyweb.runs.live import LiveJob
from spyweb.runs.records import DEBUG
from spyweb.store.protocol import NewRun, SkippedRange


class Observer(Protocol):
    """Somebody who watches one run, line by line."""

    def log(self, level: str, text: bytes) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None: ...


class RunRequest(Struct, frozen=True, kw_only=True):
    """A request that a job run once."""

    trigger: Mapping[str, object]
    due_ms: int | None = None
    made_up_for: bool = False  # one of several due times that have passed: it waits where another would be skipped
    observer: Observer | None = None  # a watched run (`spyweb run`) is one attempt, and starts no other job


def by_hand(observer: Observer | None = None, *, debug: bool = False) -> RunRequest:
    """Return a person's request; with `debug`, to see what a monitor job finds, and to keep nothing of it."""
    trigger: dict[str, object] = {"type": TriggerType.MANUAL.value}
    return RunRequest(trigger={**trigger, DEBUG: True} if debug else trigger, observer=observer)


class DueRuns(Struct, frozen=True, kw_only=True, eq=False):
    """Everything that has come due of one job, and how far that moves its cursor."""

    job: LiveJob
    requests: Sequence[RunRequest]
    before: Cursor
    cursor: Cursor
    skipped: Sequence[SkippedRange] = ()  # due times that do not run


class ClaimedRun(Struct, frozen=True, kw_only=True, eq=False):
    """A request that was admitted, on its way to the store."""

    job: LiveJob
    new: NewRun
    observer: Observer | None = None
    replaces: bool = False  # once it is on record, what runs and what waits makes way
