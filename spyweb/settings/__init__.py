"""What can be set, and where from.  `load_settings` is the way in."""

from spyweb.settings.load import (
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
    load_settings,
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
