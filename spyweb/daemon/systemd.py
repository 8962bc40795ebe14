"""Report the state of the daemon to systemd (sd_notify): one datagram per message to the socket in NOTIFY_SOCKET.

Without NOTIFY_SOCKET (not started by systemd, or not as Type=notify) every call does nothing, and none ever raises.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

LONGEST_STATUS = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    address: str | None = None
    watchdog_interval_s: float | None = None  # call watchdog() at least this often; None: systemd does not expect it

    def ready(self, status: str = "") -> bool:
        return self._send("READY=1", self._status(status))

    def status(self, text: str) -> bool:
        return self._send(self._status(text))

    def stopping(self) -> bool:
        return self._send("STOPPING=1")

    def watchdog(self) -> bool:
        return self._send("WATCHDOG=1")

    def _status(self, text: str) -> str:
        one_line = " ".join(text.split())[:LONGEST_STATUS]
        return f"STATUS={one_line}" if one_line else ""

    def _send(self, *fields: str) -> bool:
        """Send a message, and return whether it was sent."""
        if not self.address:
            return False
        message = "\n".join(line for line in fields if line)
        target = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as sender:
                sender.sendto(message.encode("utf-8", "replace"), target)
        except OSError:  # systemd does not listen or its queue is full: no reason for the daemon to fail
            return False
        return True


def from_environment(environment: Mapping[str, str], pid: int | None = None) -> Notifier:
    """Return the notifier that systemd asked for, or one that does nothing."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return Notifier()
    microseconds, own = environment.get("WATCHDOG_USEC", ""), str(pid or os.getpid())
    is_watched = environment.get("WATCHDOG_PID", own) == own and microseconds.isdecimal() and int(microseconds) > 0
    half_s = int(microseconds) / 2_000_000 if is_watched else None  # of the timeout, as systemd's manual advises
    return Notifier(address=address, watchdog_interval_s=half_s)
