"""Alert channels, as people and machines are shown them."""

from __future__ import annotations

from msgspec import Struct


class ChannelTried(Struct, frozen=True, kw_only=True):
    """How it went when a channel was tried out; no part of its address is shown."""

    channel: str
    is_sent: bool
    reason: str = ""  # why it was not
