"""Alert channels as clients ask for them: what each takes, and trying one out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from spyweb.alerts.channels import ADDRESS, DOWN, TEMPLATE, ChannelTally, shown
from spyweb.alerts.delivery import Attempt
from spyweb.clock import Clock
from spyweb.incidents.policy import quiet_until
from spyweb.incidents.truth import CHANNEL
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings, show_quiet
from spyweb.store.model.messages import Channel, TargetBacklog
from spyweb.store.sqlite.store import Store
from spyweb.views.channels import ChannelTried, ChannelView

SendTest = Callable[[str, int], Awaitable[Attempt]]


@dataclass(slots=True, kw_only=True)
class ChannelService:
    """Shows the channels of the settings."""

    send_test: SendTest
    store: Store
    settings: Callable[[], AlertSettings]
    tallies: Mapping[str, ChannelTally]
    clock: Clock
    _tests: dict[str, tuple[int, ChannelTried]] = field(default_factory=dict)  # the last of each channel

    async def list(self) -> list[ChannelView]:
        """Return the channels in the order of the settings."""
        settings = self.settings()
        backlogs = await self.store.outbox.backlogs(Channel.ALERT)
        return [await self._view(each, settings, backlogs.get(each.name)) for each in settings.channels.values()]

    async def _view(
        self, channel: AlertChannelSettings, settings: AlertSettings, backlog: TargetBacklog | None
    ) -> ChannelView:
        subject = f"{CHANNEL}{channel.name}"
        wrong = next(iter(await self.store.incidents.list(is_open=True, subject=subject, limit=1)), None)
        signs = wrong.signs if wrong else {}
        tally = self.tallies.get(channel.name, ChannelTally())
        address, quiet = shown(channel), channel.quiet if channel.has_own_quiet else settings.policy.quiet
        tested_ms, test = self._tests.get(channel.name, (None, None))
        return ChannelView(
            name=channel.name,
            kind=address.kind,
            service=address.service,
            host=address.host,
            level=channel.level.value,
            quiet=show_quiet(quiet),
            quiet_until_ms=quiet and quiet_until(quiet, self.clock.now_ms()),
            waiting=backlog.waiting if backlog else 0,
            oldest_ms=backlog and backlog.oldest_ms,
            sent=tally.sent,
            failed=tally.failed,
            sent_ms=tally.sent_ms,
            error=tally.error or (backlog.error if backlog else ""),
            failed_ms=tally.failed_ms,
            down_since_ms=signs[DOWN].since_ms if DOWN in signs else None,
            incident=wrong.id if wrong else None,
            unusable=signs[ADDRESS].text if ADDRESS in signs else "",
            template_problem=signs[TEMPLATE].text if TEMPLATE in signs else "",
            tested_ms=tested_ms,
            test=test,
        )

    async def try_out(self, channel: str) -> ChannelTried:
        """Send a message that tells of nothing, past the outbox.  Raises Refused where there is no such channel."""
        attempt = await self.send_test(channel, self.clock.now_ms())
        failed = attempt.failure.reason if attempt.failure else ""
        problem = attempt.template_problem
        told = problem and f"its template fails, the built-in text was sent: {problem}"
        tried = ChannelTried(channel=channel, is_sent=attempt.failure is None, reason=failed or told)
        self._tests[channel] = self.clock.now_ms(), tried
        return tried
