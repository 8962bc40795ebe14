"""Read the daemon's options, and the settings that follow from them."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import Struct, field

from spyweb.errors import Refused
from spyweb.settings import Settings, load_settings
from spyweb.web.serve import url_of


class Options(Struct, frozen=True, kw_only=True):
    """Holds what `spyweb start` was given."""

    root: Path
    flags: Mapping[str, object] = field(default_factory=dict)  # settings given on the command line
    repair: bool = False  # move a damaged database aside


def read_settings(options: Options, first: Settings | None = None) -> Settings:
    """Read the settings, with a free port in place of port 0; read again while the daemon runs, with the one that it
    has found at `first`."""
    settings = load_settings(options.root, environ=os.environ, flags=options.flags)
    server = settings.server
    if not server.enabled or server.port:
        return settings
    port = first.server.port if first else free_port(server.host)
    return replace(settings, server=replace(server, port=port))


def free_port(host: str) -> int:
    """Find a free port before the server listens on it: scripts are told the URL when the workers start."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise Refused(f"can't listen on {host}: {error.strerror}") from error
        return int(probe.getsockname()[1])


def server_url(settings: Settings) -> str | None:
    """Return where the server will listen; None where it is switched off."""
    server = settings.server
    return url_of(server.host, server.port, is_tls=bool(server.tls_cert)) if server.enabled else None
