"""Alert channels, as people and machines are shown them."""

from __future__ import annotations

from msgspec import Struct


class ChannelTried(Struct, frozen=True, kw_only=True):
    """How it went when a channel was tried out; no part of its address is shown."""

    channel: str
    is_sent: bool
    reason: str = ""  # why it was not, or not as it was meant


class ChannelView(Struct, frozen=True, kw_only=True):
    """An alert channel of config.toml; of its address nothing is shown but service and host."""

    name: str
    kind: str  # "service", of Apprise's, "webhook" or "desktop"
    service: str  # "ntfy", "mailtos", …; "" of others, and where the address stands elsewhere
    host: str  # "" where the address has none, or what stands there is a secret
    level: str  # the least that it is told: "info", "warning" or "critical"
    quiet: str  # "22:00-07:00"; "" for never
    quiet_until_ms: int | None  # where it is quiet now
    waiting: int  # messages
    oldest_ms: int | None  # since when the oldest of them waits
    sent: int  # messages that it took since the daemon has started
    failed: int  # attempts that failed since then
    sent_ms: int | None  # when it took the last one
    error: str  # of the last attempt that failed
    failed_ms: int | None  # when that was; unknown of one before the daemon has started
    down_since_ms: int | None  # since when it takes nothing, and the others are told so
    incident: int | None  # the one that says so, or what follows
    unusable: str = ""  # why its address can't be used
    template_problem: str = ""  # why its template writes nothing: the built-in text is sent
    tested_ms: int | None = None  # when it was last tried out since the daemon has started ...
    test: ChannelTried | None = None  # ... and how that went
