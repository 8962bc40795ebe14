"""Describe to every VM the machine that it runs on."""

from __future__ import annotations

import os
import platform

from spyweb import __version__
from spyweb.lua.session import EngineInfo
from spyweb.ops import catalog
from spyweb.ops.environment import visible_environment
from spyweb.settings import Settings


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
