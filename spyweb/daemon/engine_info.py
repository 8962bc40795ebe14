"""Describe the machine that spyweb runs on, for every VM."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping

from spyweb import __version__
from spyweb.lua.session import EngineInfo
from spyweb.ops import catalog
from spyweb.settings import Settings
from spyweb.settings.sections import SECRETS

PREFIX = "SPYWEB_"


def engine_info(settings: Settings, server_url: str | None) -> EngineInfo:
    engine: dict[str, object] = {
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "headless": not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")),
        "version": __version__,
        "lua_version": "lua54",
        "storage": "sqlite",
    }
    if server_url:
        engine["server_url"] = server_url
    return EngineInfo(
        ops=catalog.names(),
        engine=engine,
        env=visible_environment(os.environ, settings.security.env_deny),
        timezone=settings.daemon.timezone,
    )


def visible_environment(environ: Mapping[str, str], deny: Iterable[str] = ()) -> dict[str, str]:
    """Return what env_get shows: every SPYWEB_NAME as NAME, except those denied (with or without the prefix).

    The daemon's own secrets are always denied: no worker ever has them.  Bytes that are not UTF-8 are replaced.
    """
    denied = {name.removeprefix(PREFIX) for name in (*SECRETS, *deny)}
    return {
        _readable(name.removeprefix(PREFIX)): _readable(value)
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != PREFIX and name.removeprefix(PREFIX) not in denied
    }


def _readable(text: str) -> str:
    """Replace bytes that are not UTF-8: Python keeps them as lone surrogates, which no frame can carry."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
