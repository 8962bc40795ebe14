"""The alert channels, as ops see them: `notify` asks which there are, and what holds a message back."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from spyweb.model import JobId
from spyweb.store.incidents_protocol import AlertChannelNow


class AlertChannels(Protocol):
    """The alert channels of the settings, as they are now."""

    def names(self) -> Collection[str]: ...

    def find(self, name: str, job: JobId, now_ms: int) -> AlertChannelNow | None:
        """Return a channel, with the end of the quiet hours that it is in for this job."""

    def day(self, now_ms: int) -> str:
        """Return what day it is in the daemon's time zone."""


class NoChannels:
    """No settings have any."""

    def names(self) -> Collection[str]:
        return ()

    def find(self, _name: str, _job: JobId, _now_ms: int) -> AlertChannelNow | None:
        return None

    def day(self, _now_ms: int) -> str:
        return ""
