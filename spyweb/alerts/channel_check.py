"""Check alert channels without sending anything: their addresses and templates, by the process that sends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from spyweb.alerts.apprise_sender import AlertAsk, templates_of
from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.alerts.sender.wire import CheckAddress, HelperAnswer
from spyweb.alerts.writing import TEMPLATE_FACTS
from spyweb.settings.alerts import AlertChannelSettings


class ChannelProblem(NamedTuple):
    """One thing that is wrong with a channel."""

    channel: str
    keys: tuple[str, ...]  # in its settings
    reason: str  # without any part of an address
    is_lasting: bool = False  # until somebody changes the settings
    is_of_environment: bool = False  # a variable or a secret of the daemon's, which other commands need not have

    @property
    def is_of_template(self) -> bool:
        return self.keys[0] == "templates"


async def check_channels(
    channels: Iterable[AlertChannelSettings], secrets: ChannelSecrets, helper: AlertAsk
) -> list[ChannelProblem]:
    """Return what is wrong with channels.  The process is asked about those alone that have an address of a service."""
    found = await asyncio.gather(*(check_channel(channel, secrets, helper) for channel in channels))
    return [problem for problems in found for problem in problems]


async def check_channel(
    channel: AlertChannelSettings, secrets: ChannelSecrets, helper: AlertAsk
) -> list[ChannelProblem]:
    if missing := secrets.missing(channel):
        key, name = missing
        return [ChannelProblem(channel.name, (key,), f"the variable {name} is not set", is_of_environment=True)]
    if channel.desktop:
        return []
    key = "webhook" if channel.webhook else "url_file" if channel.url_file else "url"
    try:
        url = secrets.webhook(channel) if channel.webhook else secrets.url(channel)
    except ValueError as error:
        return [ChannelProblem(channel.name, (key,), str(error))]
    if channel.webhook:
        return check_secret(channel, secrets)
    asked = CheckAddress(id=0, url=url, templates=templates_of(channel.templates), names=TEMPLATE_FACTS)
    return problems_in(await helper.ask(asked), channel.name, key)


def check_secret(channel: AlertChannelSettings, secrets: ChannelSecrets) -> list[ChannelProblem]:
    try:
        secrets.secret(channel)
    except ValueError as error:
        key = "secret_file" if channel.secret_file else "secret"
        return [ChannelProblem(channel.name, (key,), str(error), is_of_environment=key == "secret")]
    return []


def problems_in(answer: HelperAnswer, channel: str, key: str) -> list[ChannelProblem]:
    if answer.template_problem:
        keys = ("templates", answer.template) if answer.template else ("templates",)
        return [ChannelProblem(channel, keys, answer.template_problem, is_lasting=True)]
    is_lasting = key == "url" and answer.is_address_wrong
    return [] if answer.ok else [ChannelProblem(channel, (key,), answer.reason, is_lasting=is_lasting)]
