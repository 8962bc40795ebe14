"""Check the addresses and templates of notification channels without sending anything, by the process that sends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import structlog

from spyweb.alerts.channels import ADDRESS, TEMPLATE, ChannelSecrets
from spyweb.alerts.delivery import templates_of
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.sender.wire import CheckAddress, HelperAnswer
from spyweb.alerts.texts import TEMPLATE_FACTS
from spyweb.clock import Clock
from spyweb.settings.alerts import NO_TEMPLATES, AlertChannelSettings, AlertSettings

log = structlog.get_logger()

AGAIN_S = 60.0  # while an address can't be used

# Is called with a channel, a sign, and the problem: empty where there is none.
ChannelListener: TypeAlias = Callable[[str, str, str], None]


class ChannelProblem(NamedTuple):
    """One thing that is wrong with a channel."""

    channel: str
    keys: tuple[str, ...]  # in its settings
    reason: str  # without any part of an address
    is_lasting: bool = False  # until somebody changes the settings
    is_of_environment: bool = False  # a variable or a secret of the daemon, which other commands may lack

    @property
    def is_of_template(self) -> bool:
        return self.keys[0] == "templates"


async def check_channels(
    channels: Iterable[AlertChannelSettings], secrets: ChannelSecrets, helper: AlertHelper
) -> list[ChannelProblem]:
    """Return the problems of channels.  The process is asked only about addresses of services."""
    found = await asyncio.gather(*(check_channel(channel, secrets, helper) for channel in channels))
    return [problem for problems in found for problem in problems]


async def check_channel(
    channel: AlertChannelSettings, secrets: ChannelSecrets, helper: AlertHelper
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
        try:
            secrets.secret(channel)
        except ValueError as error:
            key = "secret_file" if channel.secret_file else "secret"
            return [ChannelProblem(channel.name, (key,), str(error), is_of_environment=key == "secret")]
        return []
    asked = CheckAddress(id=0, url=url, templates=templates_of(channel.templates), names=TEMPLATE_FACTS)
    return problems_in(await helper.ask(asked), channel.name, key)


def problems_in(answer: HelperAnswer, channel: str, key: str) -> list[ChannelProblem]:
    if answer.template_problem:
        keys = ("templates", answer.template) if answer.template else ("templates",)
        return [ChannelProblem(channel, keys, answer.template_problem, is_lasting=True)]
    is_lasting = key == "url" and answer.is_address_wrong
    return [] if answer.ok else [ChannelProblem(channel, (key,), answer.reason, is_lasting=is_lasting)]


@dataclass(kw_only=True, eq=False)
class ChannelChecker:
    """Checks the channels of a running daemon, so that a wrong address is known before a message needs it.

    A channel is checked once this node sends to it, and after each change by a reload.  The check starts the process
    that sends, which takes half a second of one processor and ends soon after.  An invalid address is read again every
    minute, since no event announces that its file was fixed.
    """

    settings: Callable[[], AlertSettings]
    secrets: ChannelSecrets
    helper: AlertHelper
    clock: Clock
    find_missing_desktop: Callable[[], str]
    tell: ChannelListener
    is_mine: Callable[[str], bool] = lambda _channel: True  # whether this node sends to it
    _checked: dict[str, AlertChannelSettings] = field(init=False, default_factory=dict)
    _unusable: dict[str, ChannelProblem] = field(init=False, default_factory=dict)
    _changed: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def wake(self) -> None:
        """Check the channels again soon: they may have changed."""
        self._changed.set()

    async def keep_up(self) -> None:
        """Check channels that have changed, until cancelled."""
        while True:
            self._changed.clear()
            try:
                channels = {name: each for name, each in self.settings().channels.items() if self.is_mine(name)}
                for gone in self._checked.keys() - channels.keys():
                    del self._checked[gone]
                    self._unusable.pop(gone, None)
                again = set(self._to_check_again())
                due = [each for each in channels.values() if each.name in again or self._checked.get(each.name) != each]
                await asyncio.gather(*(self._check(channel) for channel in due))
            except Exception:  # an internal error must not end the checks
                log.exception("internal error while checking alert channels")
            alarm = self.clock.call_later(AGAIN_S, self._changed.set) if any(self._to_check_again()) else None
            await self._changed.wait()
            if alarm:
                alarm.cancel()

    def _to_check_again(self) -> Iterator[str]:
        return (name for name, problem in self._unusable.items() if not problem.is_lasting)

    async def _check(self, channel: AlertChannelSettings) -> None:
        before = self._checked.get(channel.name)
        self._checked[channel.name] = channel
        if channel.desktop and (missing := self.find_missing_desktop()):
            problems = [ChannelProblem(channel.name, ("desktop",), missing)]
        else:
            problems = await check_channel(channel, self.secrets, self.helper)
        of_address = next((each for each in problems if not each.is_of_template), None)
        of_template = next((each for each in problems if each.is_of_template), None)
        self._note(channel, ADDRESS, of_address)
        # A template that compiles may still fail: only a new one, or a text that it wrote, clears the problem.
        is_another = before is not None and before.templates != channel.templates
        if of_template or is_another or channel.templates == NO_TEMPLATES:
            self._note(channel, TEMPLATE, of_template)

    def _note(self, channel: AlertChannelSettings, sign: str, problem: ChannelProblem | None) -> None:
        if sign == ADDRESS:
            was = self._unusable.pop(channel.name, None)
            if problem:
                self._unusable[channel.name] = problem
            if problem and problem != was:
                log.error("an alert channel can't be used", alert_channel=channel.name, reason=problem.reason)
        elif problem:
            log.warning("a template of an alert channel fails", alert_channel=channel.name, reason=problem.reason)
        self.tell(channel.name, sign, f"{'.'.join(problem.keys)}: {problem.reason}" if problem else "")
