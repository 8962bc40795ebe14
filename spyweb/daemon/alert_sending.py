"""Wire what sends messages to alert channels, in whatever runs jobs: a daemon, or a person in the foreground."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec import Struct

from spyweb.alerts.ack_links import AckLinks
from spyweb.alerts.apprise_sender import AppriseSender
from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.alerts.delivery import AlertDelivery, AlertSenders, WebhookSender
from spyweb.alerts.desktop_sender import DesktopSender
from spyweb.alerts.open_channels import OpenChannels
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.tally import AttemptTallies
from spyweb.alerts.writing import AlertWriter
from spyweb.logs.secrets import secrets_in
from spyweb.ops.world import World
from spyweb.runs.live import LiveJobs
from spyweb.settings import Settings
from spyweb.settings.alerts import AlertSettings
from spyweb.store.sqlite.store import Store
from spyweb.web.pages.site import ROOT


class AlertSending(Struct, frozen=True, kw_only=True):
    """Holds what sends messages to alert channels."""

    delivery: AlertDelivery
    channels: OpenChannels
    ack_links: AckLinks
    tallies: AttemptTallies
    helper: AlertHelper

    def follow(self, settings: Callable[[], AlertSettings]) -> None:
        """Go by these settings from now on, which may change."""
        self.delivery.settings = self.channels.settings = self.ack_links.settings = settings


def open_sending(
    stack: AsyncExitStack,
    settings: Settings,
    store: Store,
    live: LiveJobs,
    world: World,
    channels: OpenChannels,
) -> AlertSending:
    clock = world.clock
    helper = AlertHelper(clock, os.environ)
    stack.push_async_callback(helper.close)
    channel_secrets = ChannelSecrets(settings.root, os.environ)
    writer = AlertWriter(
        timezone=settings.daemon.timezone,
        pages=settings.server.public_url and f"{settings.server.public_url}{ROOT}",
        root=settings.root,
        live=live,
        past_runs=store.past_runs,
        environ=os.environ,
    )
    senders = AlertSenders(
        webhooks=WebhookSender(world.http, clock, channel_secrets),
        services=AppriseSender(helper, channel_secrets, clock, writer),
        desktop=DesktopSender(world.desktop, writer),
    )
    ack_links = AckLinks(settings.server.public_url, lambda: settings.alerts)
    return AlertSending(
        delivery=AlertDelivery(senders, lambda: settings.alerts, ack_links, secrets_in(os.environ)),
        channels=channels,
        ack_links=ack_links,
        tallies=AttemptTallies(clock),
        helper=helper,
    )
