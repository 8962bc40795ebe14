"""Read `[heartbeat]`: the address that is asked for while spyweb is well, so that somebody else notices its silence."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from spyweb.settings.addresses import address_template
from spyweb.settings.reading import Reading
from spyweb.settings.units import DAY_MS, MINUTE_MS, SECOND_MS, format_duration
from spyweb.settings.values import duration

SHORTEST_MS = 10 * SECOND_MS

_EVERY = duration(SHORTEST_MS, DAY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    url: str = field(default="", repr=False)  # as it is written, with its variables; empty: nobody is pinged
    every_ms: int = MINUTE_MS


def take_heartbeat(read: Reading) -> HeartbeatSettings:
    settings = HeartbeatSettings(
        url=read.take("url", address_template, ""),
        every_ms=read.take("every", _EVERY, MINUTE_MS),
    )
    if read.has("every") and not settings.url and not read.has("url"):
        read.refuse(f"every {format_duration(settings.every_ms)}, but where to? url has the address", "every")
    return settings


def is_on_this_machine(url: str) -> bool:
    """Tell whether an address is one of this machine, as far as it shows that itself."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
