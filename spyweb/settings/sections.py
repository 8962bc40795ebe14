"""The settings as values: each key with its default, its reader and one line about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from spyweb import __version__
from spyweb.model import MIB, Durability, HistoryRule, OnStoreError
from spyweb.permissions.policy import USUAL, Grants, Policy, policy_of
from spyweb.settings.addresses import address_template, secret_place
from spyweb.settings.alerts import AlertSettings
from spyweb.settings.reading import TEXT, Shape, shaped, told, wrong
from spyweb.settings.tables import TomlTable
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from spyweb.settings.values import (
    boolean,
    duration,
    headers,
    history,
    host_names,
    labels,
    line,
    one_line,
    one_of,
    or_word,
    public_url,
    size,
    text,
    texts,
    whole,
)

T = TypeVar("T")

FILE = "config.toml"
POSTGRES = ("postgresql://", "postgres://")  # what the url of a store that nodes share begins with
MEMORY = "memory:"  # the url of a store that leaves nothing behind
DATABASE, USER_DB, LOCK_NAME, SOCKET = "spyweb.db", "user.db", "spyweb.lock", "spyweb.sock"  # in the data directory
MARKER = "database.json"  # in the data directory: facts about the database for the next start
STORE_PASSWORD = "env:SPYWEB_STORE_PASSWORD"
SECRETS = ("API_KEY", "STORE_KEY", "STORE_PASSWORD", "STORE_URL")  # SPYWEB_ before each: no script ever sees them
SHORTEST_PERIOD_MS = 10  # the scheduler wakes no more often
SHORTEST_HEARTBEAT_MS = 10 * SECOND_MS
GIB = 1 << 30
MOST_COMMANDS = 100  # at once: each has five descriptors, and the kernel keeps no more in one socket for certain
LEAST_MEMORY = 64 * MIB  # of a command; less would keep its nanny from starting it
SETTING = "setting"  # among the metadata of a field: how it is read


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    AUTO = "auto"  # text on a terminal, else JSON
    JSON = "json"
    TEXT = "text"


@shaped({"type": "string", "pattern": "^(https?://.+)?$"})
def _endpoint(value: object) -> str:
    url = text(value).strip()
    if url and not url.startswith(("http://", "https://")):
        raise ValueError("expected the address of a collector, such as http://localhost:4318/v1/traces")
    return url


@shaped({"type": "number", "minimum": 0, "maximum": 1})
def _sample(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("expected a share from 0 to 1")
    return float(value)


@shaped({"type": "string", "pattern": "^[a-z_][a-z0-9_]{0,62}$"})
def _schema(value: object) -> str:
    name = text(value)
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", name) or name.startswith("pg_"):
        raise ValueError(f"{name[:80]!r} is no schema: expected small letters, digits and _, and no pg_ before")
    return name


_LOG_LEVEL = shaped({"enum": [*(level.value for level in LogLevel), "warn"]}, str)(
    lambda value: one_of(LogLevel)("warning" if value == "warn" else value)
)
_FILE = shaped(TEXT)(lambda value: one_line(value) if value else text(value))


PATH = r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}){1,5}$"
# What spyweb's own addresses, and those of the project's endpoints, begin with.
RESERVED = frozenset({
    "a", "api", "channels", "events", "health", "healthz", "incidents", "jobs", "keys", "maintenance", "metrics",
    "nodes", "outbox", "readyz", "records", "runs", "sign-in", "sign-out", "state", "static", "theme", "when",
})  # fmt: skip


@shaped({"type": "string", "pattern": PATH})
def _page_path(value: object) -> str:
    path = text(value)
    if not re.fullmatch(PATH, path):
        raise wrong('a path such as "/status", without a slash at its end', path)
    if (first := path.split("/")[1]) in RESERVED:
        raise ValueError(f'"/{first}" is an address of spyweb itself: expected another, such as "/status"')
    return path


def setting(default: T, read: Shape[T], words: str, *, is_shown: bool = True) -> T:
    """Return the dataclass field of a key; in a file its name lacks the `_ms` at the end."""
    metadata = {SETTING: told(read, words)}
    found: T = field(default_factory=lambda: default, repr=is_shown, metadata=metadata)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    data_dir: Path
    timezone: str = "UTC"
    workers: int = 2
    default_interval_ms: int = setting(10 * MINUTE_MS, duration(SHORTEST_PERIOD_MS), "The interval without a schedule.")
    shutdown_grace_ms: int = setting(10 * SECOND_MS, duration(), "The time that running runs get to end at a stop.")
    log_level: LogLevel = setting(LogLevel.INFO, _LOG_LEVEL, "The lowest level that is logged.")
    log_format: LogFormat = setting(
        LogFormat.AUTO, one_of(LogFormat), "The form of the daemon's own log; auto: text on a terminal, otherwise JSON."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    enabled: bool = setting(True, boolean, "Whether the HTTP server listens on TCP.")
    host: str = setting(
        "127.0.0.1",
        one_line,
        "The address to listen on; one beyond loopback needs a key: SPYWEB_API_KEY, or one of `spyweb keys add`.",
    )
    port: int = setting(7979, whole(0, 65_535), "The port to listen on; 0 takes any free one.")
    dashboard_port: int = setting(
        0, whole(0, 65_535), "The dashboard's own port. 0: one after `port`, or a free one, once there is content."
    )
    hosts: tuple[str, ...] = setting((), host_names, "Host names of a reverse proxy that forwards requests here.")
    public_url: str = setting("", public_url, "The public address of this server, with which links in messages begin.")
    tls_cert: str = setting("", _FILE, "The certificate chain, a PEM file; empty: no TLS.")
    tls_key: str = setting("", _FILE, "The private key of the certificate, a PEM file.")
    api_key: str | None = field(default=None, repr=False)  # from SPYWEB_API_KEY alone
    permissions: Policy = field(default_factory=lambda: policy_of(USUAL, is_server=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The store; its `url` has no password."""

    url: str
    hidden: str = field(default="", repr=False)  # the password that stood in the url, or at the place of one
    schema: str = setting("spyweb", _schema, "The schema of spyweb's tables in PostgreSQL.")
    password: str = setting(
        STORE_PASSWORD,
        secret_place,
        'The place of PostgreSQL\'s password, "env:NAME" or "credential:NAME"; none there: that of ~/.pgpass.',
    )
    durability: Durability = setting(
        Durability.FULL,
        one_of(Durability),
        '"full" survives a power cut; "normal" is faster and survives a crash of the daemon.',
    )
    on_error: OnStoreError = setting(
        OnStoreError.LOG,
        one_of(OnStoreError),
        'What a failed store call does: "log" marks the run, "raise" also raises an error in the script.',
    )
    key_file: str = setting("", _FILE, 'Encrypts values: a file of 32 bytes, or "credential:NAME" of systemd.')

    @property
    def is_memory(self) -> bool:
        return self.url == MEMORY

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith(POSTGRES)

    @property
    def is_file(self) -> bool:
        return not self.is_memory and not self.is_postgres

    @property
    def path(self) -> Path:
        """Return the database's file, where it is one."""
        return Path(self.url.removeprefix("sqlite:///"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """This daemon as one of several that share a PostgreSQL."""

    name: str  # of this node
    url: str = setting("", public_url, "Where other nodes reach this dashboard; empty: where `[server]` listens.")
    labels: tuple[str, ...] = setting((), labels, "Labels of this node, for jobs that ask for `labels`.")
    only_labels: bool = setting(False, boolean, "Whether it runs only jobs that ask for its labels, or for it by name.")
    lease_ms: int = setting(
        10 * SECOND_MS, duration(SECOND_MS, HOUR_MS), "The time without a beat after which others take its jobs over."
    )
    beat_ms: int = setting(2 * SECOND_MS, duration(100, HOUR_MS), "The time between beats; at most a quarter of lease.")
    standby: bool = setting(False, boolean, "Whether this node runs jobs only while no other node is up.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    sweep_interval_ms: int = setting(5 * MINUTE_MS, duration(SECOND_MS), "Time between removals of expired entries.")
    max_value_bytes: int = setting(MIB, size(1, GIB), "The largest value.")
    max_key_bytes: int = setting(512, size(1, MIB), "The longest key.")
    strict_locks: bool = setting(False, boolean, "Whether only the holder of a lock may release it.")
    shared_agents: bool = setting(False, boolean, "Whether all agents share one namespace.")
    history: Mapping[str, HistoryRule] = setting({}, history, "Past versions to keep, by namespace.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSettings:
    keep: int = setting(1_000, whole(1, 1_000_000_000), "Runs of each job in the history.")
    keep_for_ms: int = setting(30 * DAY_MS, duration(SECOND_MS), "How long runs are kept.")
    keep_tasks: int = setting(100, whole(1, 1_000_000), "Runs of each job whose tasks are kept.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSettings:
    keep: int = setting(100_000, whole(1, 1_000_000_000), "Records of each monitor.")
    keep_for_ms: int | None = setting(None, or_word("none", duration(SECOND_MS)), "How long records are kept.")
    seen_for_ms: int = setting(365 * DAY_MS, duration(7 * DAY_MS), "How long an item is known after it was last seen.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSettings:
    cron: str = setting("", _FILE, "When the daemon makes a backup, as a cron expression; empty: never by itself.")
    keep: int = setting(7, whole(1, 100_000), "The number of its backups that are kept.")
    dir: str = setting("backups", one_line, "Their folder; it is made if it is missing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    per_job: bool = setting(True, boolean, "Whether /metrics has figures of each job (at most 1,000), or only totals.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    otlp_endpoint: str = setting("", _endpoint, "Where traces go by OTLP over HTTP; it needs the extra spyweb[otel].")
    sample: float = setting(1.0, _sample, "The share of runs that are traced.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    deny_private: bool = setting(False, boolean, "Refuse addresses of private networks.")
    user_agent: str = setting(f"spyweb/{__version__}", one_line, "The User-Agent header of requests.")
    headers: tuple[tuple[str, str], ...] = setting(
        (), headers, "Headers of each request of scripts and monitors that does not set them itself."
    )
    timeout_ms: int = setting(30 * SECOND_MS, duration(1), "How long one request may take.")
    max_body_size: int = setting(10 * MIB, size(1, GIB), "The largest body of a response, after decompression.")
    per_host: int = setting(2, whole(1, 1_000), "The number of requests of all monitors to one host at a time.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSettings:
    """Limits on the commands of scripts; None: no limit."""

    at_once: int = setting(16, whole(1, MOST_COMMANDS), "How many commands of scripts run at once; further ones wait.")
    memory: int | None = setting(
        None,
        or_word("none", size(LEAST_MEMORY, 1 << 50)),
        "The memory of each process of a command; of the whole command where systemd delegates a control group.",
    )
    cpu_ms: int | None = setting(None, or_word("none", duration(SECOND_MS)), "CPU time of each process of a command.")
    processes: int | None = setting(
        None,
        or_word("none", whole(1, 1_000_000)),
        "The number of processes of a command; only where systemd delegates a control group.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    env_deny: tuple[str, ...] = setting(SECRETS, texts, "Names that env_get does not show.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    url: str = setting(
        "",
        address_template,
        "The address pinged while spyweb is healthy, and with /fail otherwise; it may hold ${NAME} of the environment.",
        is_shown=False,
    )
    every_ms: int = setting(MINUTE_MS, duration(SHORTEST_HEARTBEAT_MS, DAY_MS), "The time between two pings.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPageSettings:
    """The page that shows the state of jobs to people without a key."""

    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()  # headings, each with ids, names or patterns of jobs
    title: str = setting("Status", line(80), "The heading of the page.")
    path: str = setting("/status", _page_path, "Where it is, on the port of the project's content.")
    public: bool = setting(False, boolean, "Whether anybody may see it; otherwise it needs a key, or this machine.")
    tags: tuple[str, ...] = setting((), texts, "Shows each job with one of these tags, after those of `groups`.")
    logo: str = setting("", _FILE, "A picture above the title: a file of the project.")
    style: str = setting("", _FILE, "A style sheet beside spyweb's own: a file of the project.")
    export: str = setting("", _FILE, "A folder into which the page is written as files whenever it has changed.")
    table: TomlTable = field(default_factory=TomlTable, repr=False, compare=False)  # for problems with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    root: Path
    daemon: DaemonSettings
    server: ServerSettings
    store: StoreSettings
    cluster: ClusterSettings = field(default_factory=lambda: ClusterSettings(name="node"))
    state: StateSettings = field(default_factory=StateSettings)
    runs: RunsSettings = field(default_factory=RunsSettings)
    records: RecordsSettings = field(default_factory=RecordsSettings)
    backup: BackupSettings = field(default_factory=BackupSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    exec: ExecSettings = field(default_factory=ExecSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    status_page: StatusPageSettings | None = None
    maintenance: tuple[TomlTable, ...] = ()  # as they stand, for specs/maintenance.py
    values: TomlTable = field(default_factory=lambda: TomlTable(file=FILE, path=("values",)))  # of all scripts
    permissions: Grants = USUAL  # of jobs that have none of their own in config.toml
    defaults: TomlTable = field(default_factory=lambda: TomlTable(file=FILE, path=("defaults",)))
    jobs: Mapping[str, TomlTable] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        """Return the file that the data directory must have from one start to the next."""
        return self.daemon.data_dir / USER_DB if self.store.is_postgres else self.store.path
