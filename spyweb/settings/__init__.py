"""The daemon's own settings, from config.toml, the environment and flags.  Start at `load_settings`."""

from spyweb.settings.load import examine_settings, load_settings
from spyweb.settings.sections import (
    DaemonSettings,
    ExecSettings,
    HttpSettings,
    LogLevel,
    ServerSettings,
    Settings,
    StateSettings,
    TelemetrySettings,
)

__all__ = [
    "DaemonSettings",
    "ExecSettings",
    "HttpSettings",
    "LogLevel",
    "ServerSettings",
    "Settings",
    "StateSettings",
    "TelemetrySettings",
    "examine_settings",
    "load_settings",
]
