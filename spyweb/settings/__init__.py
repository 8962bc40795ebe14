"""The daemon's own settings, from config.toml, the environment and flags.  Start at `load_settings`."""

from spyweb.settings.load import examine_settings, load_settings
from spyweb.settings.sections import (
    DaemonSettings,
    ExecSettings,
    HttpSettings,
    LogLevel,
    MetricsSettings,
    RecordsSettings,
    RunsSettings,
    SecuritySettings,
    ServerSettings,
    Settings,
    StateSettings,
    StoreSettings,
    TelemetrySettings,
)

__all__ = [
    "DaemonSettings",
    "ExecSettings",
    "HttpSettings",
    "LogLevel",
    "MetricsSettings",
    "RecordsSettings",
    "RunsSettings",
    "SecuritySettings",
    "ServerSettings",
    "Settings",
    "StateSettings",
    "StoreSettings",
    "TelemetrySettings",
    "examine_settings",
    "load_settings",
]
