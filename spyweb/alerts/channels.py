"""The notification channels of the settings: addresses, secrets, what may be shown of them, and their health."""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from msgspec import Struct

from spyweb.clock import Clock
from spyweb.files import open_regular
from spyweb.incidents.policy import quiet_until
from spyweb.incidents.truth import SignGone, SignSeen
from spyweb.model import JobId
from spyweb.runs.live import LiveJobs
from spyweb.settings.addresses import LONGEST_SECRET, expand, missing_variables, read_secret, substitute
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings, service_address
from spyweb.store.model.incidents import AlertChannelNow

LONGEST_REASON = 300
DOWN = "down"
ADDRESS = "address"  # it is invalid
TEMPLATE = "template"  # it fails, and the built-in text is sent
SIGNS = (DOWN, ADDRESS, TEMPLATE)
MISSES = 3  # attempts in a row that failed ...
PATIENCE_MS = 5 * 60_000  # ... while a message has waited so long


class ChannelSecrets:
    """Finds the address and the secret of a channel at each use, so that a change counts at once.

    They are in files of the project; `${NAME}` in the settings is a variable of the daemon's environment, which other
    commands of spyweb may lack.
    """

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root = root
        self._environ = environ

    def url(self, channel: AlertChannelSettings) -> str:
        """Return the address of a service.  Raises ValueError, whose text holds no part of it."""
        if not channel.url_file:
            return service_address(substitute(channel.url, self._environ))
        name, line = self._read(channel.url_file)
        try:
            return service_address(line)
        except ValueError as error:
            raise ValueError(f"the file {name}: {error}") from None

    def webhook(self, channel: AlertChannelSettings) -> str:
        """Return the address of a webhook.  Raises ValueError, whose text holds no part of it."""
        return expand(channel.webhook, self._environ)

    def headers(self, channel: AlertChannelSettings) -> tuple[tuple[str, str], ...]:
        """Return the headers of a webhook.  Raises ValueError, whose text holds no part of them."""
        return tuple((name, substitute(value, self._environ)) for name, value in channel.headers)

    def secret(self, channel: AlertChannelSettings) -> bytes:
        """Return the secret that signs a webhook, or nothing.  Raises ValueError, whose text holds no part of it."""
        if channel.secret_file:
            return self._read(channel.secret_file)[1].encode()
        found = read_secret(channel.secret, self._environ) if channel.secret else b""
        if channel.secret and not found:
            raise ValueError(f"the secret {channel.secret} is missing")
        return found

    def missing(self, channel: AlertChannelSettings) -> tuple[str, str] | None:
        """Return the first variable that is not set, after the key of the setting that has it."""
        written = {
            "url": channel.url,
            "url_file": channel.url_file,
            "webhook": channel.webhook,
            "headers": " ".join(value for _, value in channel.headers),
            "secret_file": channel.secret_file,
        }
        found = ((key, name) for key, text in written.items() for name in missing_variables(text, self._environ))
        return next(found, None)

    def is_open_to_others(self, file: str) -> bool:
        """Return whether other users of this machine may read a file."""
        try:
            return bool((self._root / substitute(file, self._environ)).stat().st_mode & stat.S_IROTH)
        except (OSError, ValueError):
            return False  # reading the file reports the error

    def _read(self, file: str) -> tuple[str, str]:
        """Return the name of a file and its one line.  Raises ValueError."""
        name = substitute(file, self._environ)
        try:
            with open_regular(self._root / name) as opened:
                content = opened.read(LONGEST_SECRET + 1)
        except OSError as error:
            raise ValueError(f"the file {name} can't be read: {error.strerror or error}") from None
        line = content.decode("utf-8", "replace").strip()
        if not line:
            raise ValueError(f"the file {name} is empty")
        if len(content) > LONGEST_SECRET or not line.isprintable() or "\ufffd" in line:
            raise ValueError(f"the file {name}: expected one line of text, and nothing else")
        return name, line


class OpenChannels:
    """Finds channels with their current quiet hours: their own, or else those of the job."""

    def __init__(self, settings: Callable[[], AlertSettings], timezone: str, live: LiveJobs) -> None:
        self.settings = settings  # a daemon replaces it at each reload
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
        return channel_now(channel, quiet and quiet_until(quiet, now_ms))

    def day(self, now_ms: int) -> str:
        return datetime.fromtimestamp(now_ms / 1000, self._zone).date().isoformat()


def channel_now(channel: AlertChannelSettings, quiet_until_ms: int | None) -> AlertChannelNow:
    return AlertChannelNow(
        name=channel.name, level=channel.level, quiet_until_ms=quiet_until_ms, has_own_quiet=channel.has_own_quiet
    )


class ChannelTally(Struct):
    """The delivery attempts of one channel since the daemon started."""

    sent: int = 0
    failed: int = 0
    sent_ms: int | None = None  # the last delivery
    failed_ms: int | None = None  # the last failed attempt ...
    error: str = ""  # ... and its error


class AttemptTallies:
    """Keeps the tally of each channel; names come from the settings, so they are few."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.of: dict[str, ChannelTally] = {}

    def among(self, channels: Iterable[str]) -> dict[str, ChannelTally]:
        """Return the tallies of these channels; an empty one for a channel without attempts."""
        return {name: self.of.get(name) or ChannelTally() for name in channels}

    def attempted(self, channel: str, failure: str | None) -> None:
        """Count an attempt; `failure` is None where the message was delivered."""
        tally = self.of.setdefault(channel, ChannelTally())
        if failure is None:
            tally.sent += 1
            tally.sent_ms = self._clock.now_ms()
        else:
            tally.failed += 1
            tally.failed_ms, tally.error = self._clock.now_ms(), failure[:LONGEST_REASON]


class ChannelHealth:
    """Knows the problems of each channel, by delivery attempts and by checks."""

    def __init__(self) -> None:
        self._signs: dict[str, dict[str, str]] = {}
        self._misses: dict[str, int] = {}

    @property
    def troubled(self) -> Sequence[str]:
        """Return the channels with a known problem."""
        return [channel for channel, signs in self._signs.items() if any(signs.values())]

    def judge(self, channel: str, failure: str | None, waited_ms: int) -> SignSeen | SignGone | None:
        """Return the event of an attempt; `failure` is None where the message was delivered."""
        if failure is None:
            self._misses.pop(channel, None)
            return self.note(channel, DOWN, "")
        self._misses[channel] = self._misses.get(channel, 0) + 1
        is_down = self._misses[channel] >= MISSES and waited_ms >= PATIENCE_MS
        return self.note(channel, DOWN, failure) if is_down or self._has(channel, DOWN) else None

    def note(self, channel: str, sign: str, problem: str) -> SignSeen | SignGone | None:
        """Return the event of a sign that comes or ends; `problem` is empty where there is none."""
        had = self._has(channel, sign)
        if problem:
            problem = problem[:LONGEST_REASON]
            self._signs.setdefault(channel, {})[sign] = problem
            return None if had else SignSeen(sign, problem)
        if not had:
            return None
        del self._signs[channel][sign]
        if not self._signs[channel]:
            del self._signs[channel]
        return SignGone(sign)

    def know(self, channels: Collection[str]) -> None:
        """Learn which channels have problems on record; each that is new here may have any sign."""
        self._signs = {channel: self._signs.get(channel) or dict.fromkeys(SIGNS, "") for channel in channels}

    def forget(self, channels: Collection[str]) -> list[str]:
        """Drop channels that were removed from the settings, and return the dropped ones with signs."""
        gone = [name for name in self._signs if name not in channels]
        for name in gone:
            del self._signs[name]
        return gone

    def _has(self, channel: str, sign: str) -> bool:
        return sign in self._signs.get(channel, ())


# The host of an address is a secret for many services: a token for Slack, a topic for ntfy.
# Services whose host is always a machine; each also with an s for TLS.
WITH_HOST = frozenset(
    {"mailto", "gotify", "http", "matrix", "mmost", "mqtt", "ncloud", "nctalk", "rocket", "xmpp", "zulip"}
)
WITH_HOST_BEFORE_A_PATH = frozenset({"ntfy"})  # else the host is the topic


class ShownAddress(NamedTuple):
    kind: str  # "webhook", "service" or "desktop"
    service: str  # the scheme of a service's address: "ntfy", "mailtos"; "" where it is unknown
    host: str  # "" where it may be a secret


def shown(channel: AlertChannelSettings) -> ShownAddress:
    """Return the parts of a channel's address that may be shown."""
    if channel.webhook:
        return ShownAddress("webhook", "", _host(channel.webhook))
    if channel.desktop:
        return ShownAddress("desktop", "", "")
    scheme, colon, rest = channel.url.partition("://")
    scheme = scheme.lower() if colon else ""  # the whole address may be a variable, or in a file
    has_path = bool(rest.partition("?")[0].partition("/")[2].strip("/"))
    names = {scheme, scheme.removesuffix("s")}
    is_machine = bool(names & WITH_HOST) or (has_path and bool(names & WITH_HOST_BEFORE_A_PATH))
    return ShownAddress("service", scheme, _host(channel.url) if is_machine else "")


def _host(address: str) -> str:
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return ""
    return "" if "${" in host else host
