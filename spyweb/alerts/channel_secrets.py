"""Find the address and the secret of an alert channel at each use of it, so that a new one counts at once.

They stand in files, and `${NAME}` in the settings is a variable of the daemon's environment, which other commands of
spyweb have not got.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from spyweb.files import open_regular
from spyweb.settings.addresses import expand, missing_variables, substitute
from spyweb.settings.alerts import AlertChannelSettings, service_address
from spyweb.settings.secret_places import LONGEST_SECRET, read_secret


class ChannelSecrets:
    """Knows the project that has the files, and the environment that has the variables."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root = root
        self._environ = environ

    def url(self, channel: AlertChannelSettings) -> str:
        """Return the address of a service.  Raises ValueError, whose text has no part of it."""
        if not channel.url_file:
            return service_address(substitute(channel.url, self._environ))
        name, line = self._read(channel.url_file)
        try:
            return service_address(line)
        except ValueError as error:
            raise ValueError(f"the file {name}: {error}") from None

    def webhook(self, channel: AlertChannelSettings) -> str:
        """Return the address of a webhook.  Raises ValueError, whose text has no part of it."""
        return expand(channel.webhook, self._environ)

    def headers(self, channel: AlertChannelSettings) -> tuple[tuple[str, str], ...]:
        """Return what is sent with it.  Raises ValueError, whose text has no part of it."""
        return tuple((name, substitute(value, self._environ)) for name, value in channel.headers)

    def secret(self, channel: AlertChannelSettings) -> bytes:
        """Return what signs it, empty where nothing does.  Raises ValueError, whose text has no part of it."""
        if channel.secret_file:
            return self._read(channel.secret_file)[1].encode()
        found = read_secret(channel.secret, self._environ) if channel.secret else b""
        if channel.secret and not found:
            raise ValueError(f"the secret {channel.secret} is not there")
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
            return False  # whoever reads it tells that

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
