"""Say what may be shown of the address of an alert channel: its service, and its host where that is a machine.

What stands in the place of the host is a secret with many services: a token of Slack's, a topic of ntfy's.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from spyweb.settings.alerts import AlertChannelSettings

# Services of which the place of the host is always a machine; each also with an s for TLS.
WITH_HOST = frozenset(
    {"mailto", "gotify", "http", "matrix", "mmost", "mqtt", "ncloud", "nctalk", "rocket", "xmpp", "zulip"}
)
WITH_HOST_BEFORE_A_PATH = frozenset({"ntfy"})  # else it is the topic
SECURE = "s"


class ShownAddress(NamedTuple):
    kind: str  # "webhook", "service" or "desktop"
    service: str  # the scheme of a service's address: "ntfy", "mailtos"; "" where it is unknown
    host: str  # "" where it may be a secret


def shown(channel: AlertChannelSettings) -> ShownAddress:
    """Return what may be shown of a channel's address."""
    if channel.webhook:
        return ShownAddress("webhook", "", _host(channel.webhook))
    if channel.desktop:
        return ShownAddress("desktop", "", "")
    scheme, colon, rest = channel.url.partition("://")
    scheme = scheme.lower() if colon else ""  # all of it may be a variable, or in a file
    has_path = bool(rest.partition("?")[0].partition("/")[2].strip("/"))
    return ShownAddress("service", scheme, _host(channel.url) if _is_machine(scheme, has_path=has_path) else "")


def _is_machine(scheme: str, *, has_path: bool) -> bool:
    names = {scheme, scheme.removesuffix(SECURE)}
    return bool(names & WITH_HOST) or (has_path and bool(names & WITH_HOST_BEFORE_A_PATH))


def _host(address: str) -> str:
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return ""
    return "" if "${" in host else host
