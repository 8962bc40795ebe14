"""Links in messages by which people acknowledge an incident without a key.

A link bears a signature and the moment at which it expires.  It lets whoever has it see that one incident, and
acknowledge it in the name of the channel that the message went to; a channel that is gone from the settings takes its
links with it.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import urlencode

from spyweb.settings.alerts import AlertSettings
from spyweb.settings.units import DAY_MS, SECOND_MS
from spyweb.store.sqlite.keys import AccessKeys

LIFE_MS = 7 * DAY_MS
SIGNED_BYTES = 16  # of the signature: nobody guesses 128 bits
_MOMENT = re.compile(r"[0-9]{1,12}")  # seconds


class AckLinks:
    """Makes links below `public_url`, and knows those that it has made; with an empty one it makes none."""

    def __init__(self, public_url: str, settings: Callable[[], AlertSettings]) -> None:
        self._public_url = public_url
        self._key = b""
        self.settings = settings  # a daemon puts those there that are read again

    async def load(self, keys: AccessKeys) -> None:
        """Take the secret of the store, where links are wanted; before, none is made and none is known."""
        if self._public_url:
            self._key = await keys.link_key()

    def ack_link(self, incident: int, channel: str, now_ms: int) -> str:
        """Return a link for a message to this channel; nothing where there are none."""
        if not self._key:
            return ""
        expires = str((now_ms + LIFE_MS) // SECOND_MS)
        query = urlencode({"c": channel, "e": expires, "s": self._sign(incident, channel, expires)})
        return f"{self._public_url}/a/{incident}?{query}"

    def is_valid(self, incident: int, channel: str, expires: str, signature: str, now_ms: int) -> bool:
        """Tell whether a link with these parts was made here, and still holds."""
        if not (self._key and _MOMENT.fullmatch(expires)):
            return False
        expected = self._sign(incident, channel, expires)
        is_signed = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
        return is_signed and now_ms < int(expires) * SECOND_MS and channel in self.settings().channels

    def _sign(self, incident: int, channel: str, expires: str) -> str:
        signed = f"ack|{incident}|{channel}|{expires}".encode("utf-8", "surrogateescape")
        digest = hmac.digest(self._key, signed, sha256)[:SIGNED_BYTES]
        return urlsafe_b64encode(digest).rstrip(b"=").decode()
