"""Find the address and the secret of an alert channel: those in files are read each time, so that a new one counts."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spyweb.files import open_regular
from spyweb.settings.alerts import AlertChannelSettings, service_address
from spyweb.settings.secret_places import LONGEST_SECRET, read_secret


class ChannelSecrets(NamedTuple):
    """The project that has the files, and the environment that has the variables."""

    root: Path
    environ: Mapping[str, str]

    def url(self, channel: AlertChannelSettings) -> str:
        """Return the address of a service.  Raises ValueError, whose text has no part of it."""
        if not channel.url_file:
            return channel.url
        try:
            return service_address(self._read(channel.url_file))
        except ValueError as error:
            raise ValueError(f"the file {channel.url_file}: {error}") from None

    def secret(self, channel: AlertChannelSettings) -> bytes:
        """Return what signs a webhook, empty where it has none.  Raises ValueError where it is not there."""
        if channel.secret_file:
            try:
                return self._read(channel.secret_file).encode()
            except ValueError as error:
                raise ValueError(f"the file {channel.secret_file}: {error}") from None
        found = read_secret(channel.secret, self.environ) if channel.secret else b""
        if channel.secret and not found:
            raise ValueError(f"the secret {channel.secret} is not there")
        return found

    def is_open_to_others(self, file: str) -> bool:
        """Return whether other users of this machine may read a file."""
        try:
            return bool((self.root / file).stat().st_mode & stat.S_IROTH)
        except OSError:
            return False  # whoever reads it tells that

    def _read(self, file: str) -> str:
        """Return the one line of a file.  Raises ValueError."""
        try:
            with open_regular(self.root / file) as opened:
                content = opened.read(LONGEST_SECRET + 1)
        except OSError as error:
            raise ValueError(f"can't be read: {error.strerror or error}") from None
        line = content.decode("utf-8", "replace").strip()
        if not line:
            raise ValueError("it is empty")
        if len(content) > LONGEST_SECRET or not line.isprintable() or "\ufffd" in line:
            raise ValueError("expected one line of text, and nothing else")
        return line
