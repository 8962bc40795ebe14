"""Alert channels as clients ask for them: each can be tried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from spyweb.clock import Clock
from spyweb.outbox.send import DeliveryFailure
from spyweb.views.channels import ChannelTried

TryOut = Callable[[str, int], Awaitable[DeliveryFailure | None]]


class ChannelService:
    def __init__(self, try_out: TryOut, clock: Clock) -> None:
        self._try_out = try_out
        self._clock = clock

    async def try_out(self, channel: str) -> ChannelTried:
        """Send a message that tells of nothing, past the outbox.  Raises Refused where there is no such channel."""
        failure = await self._try_out(channel, self._clock.now_ms())
        return ChannelTried(channel=channel, is_sent=failure is None, reason=failure.reason if failure else "")
