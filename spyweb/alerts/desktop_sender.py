"""Shows messages on the desktop of the user who runs the daemon."""

from __future__ import annotations

from spyweb.alerts.delivery import AlertFacts, Attempt
from spyweb.alerts.texts import body_of, title_of
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.send import DeliveryFailure
from spyweb.settings.alerts import AlertChannelSettings
from spyweb.store.outbox_protocol import QueuedMessage

UNTIL_CLOSED = 0  # as the time for which a notification is shown


class DesktopSender:
    def __init__(self, desktop: Desktop, timezone: str) -> None:
        self._desktop = desktop
        self._timezone = timezone

    async def send(self, _channel: AlertChannelSettings, facts: AlertFacts, _queued: QueuedMessage) -> Attempt:
        """Show a message until somebody closes it; where there is no desktop, nobody would know that it was not."""
        if missing := self._desktop.find_missing():
            return Attempt.without_address(missing)
        reason = await self._desktop.show(title_of(facts), body_of(facts, self._timezone), UNTIL_CLOSED)
        return Attempt(DeliveryFailure(reason=reason) if reason else None)
