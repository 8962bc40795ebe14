"""Shows messages on the desktop of the user who runs the daemon."""

from __future__ import annotations

from spyweb.alerts.delivery import AlertFacts, Attempt
from spyweb.alerts.writing import WritesAlerts
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.send import DeliveryFailure
from spyweb.settings.alerts import AlertChannelSettings
from spyweb.store.model.messages import QueuedMessage

UNTIL_CLOSED = 0  # as the time for which a notification is shown


class DesktopSender:
    def __init__(self, desktop: Desktop, writer: WritesAlerts) -> None:
        self._desktop = desktop
        self._writer = writer

    async def send(self, _channel: AlertChannelSettings, facts: AlertFacts, _queued: QueuedMessage) -> Attempt:
        """Show a message until somebody closes it; where there is no desktop, nobody would know that it was not."""
        if missing := self._desktop.find_missing():
            return Attempt.without_address(missing)
        text = await self._writer.compose(facts)
        reason = await self._desktop.show(text.title, text.body, UNTIL_CLOSED)
        return Attempt(DeliveryFailure(reason=reason) if reason else None)
