"""What can be set, and where from.  `load_settings` is the way in."""

from spyweb.settings.load import load_settings
from spyweb.settings.sections import (
    DaemonSettings,
    Durability,
    HttpSettings,
    LogLevel,
    RunsSettings,
    SecuritySettings,
    ServerSettings,
    Settings,
    StateSettings,
    StoreSettings,
)

__all__ = [
    "DaemonSettings",
    "Durability",
    "HttpSettings",
    "LogLevel",
    "RunsSettings",
    "SecuritySettings",
    "ServerSettings",
    "Settings",
    "StateSettings",
    "StoreSettings",
    "load_settings",
]
