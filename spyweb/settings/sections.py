"""The settings as values, each with its built-in default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from spyweb import __version__
from spyweb.model import MIB, Durability, HistoryRule, OnStoreError
from spyweb.permissions.policy import USUAL, Grants, Policy, policy_of
from spyweb.settings.alerts import AlertSettings
from spyweb.settings.tables import TomlTable
from spyweb.settings.units import DAY_MS, MINUTE_MS, SECOND_MS

FILE = "config.toml"
MEMORY = "memory:"  # the url of a store that leaves nothing behind
DATABASE, USER_DB, LOCK_NAME, SOCKET = "spyweb.db", "user.db", "spyweb.lock", "spyweb.sock"  # in the data directory
MARKER = "database.json"  # in the data directory: facts about the database for the next start
SECRETS = ("API_KEY", "STORE_KEY", "STORE_PASSWORD")  # SPYWEB_ before each: no script ever sees them
SHORTEST_PERIOD_MS = 10  # the scheduler wakes no more often


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    AUTO = "auto"  # text on a terminal, else JSON
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    data_dir: Path
    timezone: str = "UTC"
    workers: int = 2
    default_interval_ms: int = 10 * MINUTE_MS
    shutdown_grace_ms: int = 10 * SECOND_MS
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 7979
    dashboard_port: int = 0  # where the project serves content; 0: the one after `port`
    hosts: tuple[str, ...] = ()  # names by which a reverse proxy is asked for it
    public_url: str = ""  # under which people reach it, for links in messages; empty: there are none
    tls_cert: str = ""  # a path relative to the root; empty: without TLS
    tls_key: str = ""
    api_key: str | None = field(default=None, repr=False)  # from SPYWEB_API_KEY alone
    permissions: Policy = field(default_factory=lambda: policy_of(USUAL, is_server=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    url: str
    durability: Durability = Durability.FULL
    on_error: OnStoreError = OnStoreError.LOG  # of jobs that do not say themselves
    key_file: str = ""  # a path relative to the root, or credential:NAME; empty: values are not encrypted

    @property
    def is_memory(self) -> bool:
        return self.url == MEMORY

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    sweep_interval_ms: int = 5 * MINUTE_MS
    max_value_bytes: int = MIB
    max_key_bytes: int = 512
    strict_locks: bool = False
    shared_agents: bool = False  # positional state.* of every agent is that of `local`
    history: Mapping[str, HistoryRule] = field(default_factory=dict)  # by namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSettings:
    keep: int = 1_000  # of each job
    keep_for_ms: int = 30 * DAY_MS
    keep_tasks: int = 100  # runs of each job whose tasks are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSettings:
    keep: int = 100_000  # of each job
    keep_for_ms: int | None = None  # None: for good
    seen_for_ms: int = 365 * DAY_MS  # an item that was on no page for this long is new when it comes back


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    per_job: bool = True  # a series a job, of at most so many jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    otlp_endpoint: str = ""  # where traces are sent; empty: nothing is traced
    sample: float = 1.0  # the share of runs that are traced


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    deny_private: bool = False
    user_agent: str = f"spyweb/{__version__}"
    headers: tuple[tuple[str, str], ...] = ()  # of each request of scripts and monitors that has none of that name
    timeout_ms: int = 30 * SECOND_MS
    max_body_size: int = 10 * MIB  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSettings:
    """The most that the commands of scripts may use; None: no limit."""

    at_once: int = 16
    memory: int | None = None  # bytes
    cpu_ms: int | None = None  # of each process
    processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    env_deny: tuple[str, ...] = SECRETS  # names that env_get does not show


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    url: str = field(default="", repr=False)  # as it is written, with its variables; empty: nobody is pinged
    every_ms: int = MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    root: Path
    daemon: DaemonSettings
    server: ServerSettings
    store: StoreSettings
    state: StateSettings = field(default_factory=StateSettings)
    runs: RunsSettings = field(default_factory=RunsSettings)
    records: RecordsSettings = field(default_factory=RecordsSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    exec: ExecSettings = field(default_factory=ExecSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    maintenance: tuple[TomlTable, ...] = ()  # as they stand, for specs/maintenance.py
    values: TomlTable = field(default_factory=lambda: TomlTable(file=FILE, path=("values",)))  # of all scripts
    permissions: Grants = USUAL  # of jobs that have none of their own in config.toml
    defaults: TomlTable = field(default_factory=lambda: TomlTable(file=FILE, path=("defaults",)))
    jobs: Mapping[str, TomlTable] = field(default_factory=dict)
