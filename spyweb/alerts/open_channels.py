"""The alert channels of the settings, as the ops of scripts see them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from zoneinfo import ZoneInfo

from spyweb.alerts.quiet import quiet_until
from spyweb.model import JobId
from spyweb.runs.live import LiveJobs
from spyweb.settings.alerts import AlertSettings
from spyweb.store.model.incidents import AlertChannelNow


class OpenChannels:
    """Finds channels, with the quiet hours that they are in: their own, or else those of the job."""

    def __init__(self, settings: Callable[[], AlertSettings], timezone: str, live: LiveJobs) -> None:
        self.settings = settings  # a daemon puts those there that are read again
        self._zone = ZoneInfo(timezone)
        self._live = live

    def names(self) -> Collection[str]:
        return self.settings().channels

    def find(self, name: str, job: JobId, now_ms: int) -> AlertChannelNow | None:
        channel = self.settings().channels.get(name)
        if channel is None:
            return None
        live = self._live.find(job)
        quiet = channel.quiet if channel.has_own_quiet else (live.spec.alerts if live else self.settings().policy).quiet
        return AlertChannelNow(
            name=name,
            level=channel.level,
            quiet_until_ms=quiet and quiet_until(quiet, now_ms),
            has_own_quiet=channel.has_own_quiet,
        )

    def day(self, now_ms: int) -> str:
        return datetime.fromtimestamp(now_ms / 1000, self._zone).date().isoformat()
