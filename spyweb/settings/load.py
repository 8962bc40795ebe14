"""Load the daemon's own settings: command-line flag > SPYWEB_* variable > config.toml > built-in.

`load_settings` raises one ConfigError that carries every problem.  `[defaults]`, `[jobs.ID]` and `[[maintenance]]` are
kept as they stand, for specs/parse.py and specs/maintenance.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from spyweb import __version__
from spyweb.errors import ConfigError, Problem
from spyweb.files import open_regular
from spyweb.incidents.policy import NOBODY
from spyweb.limits import PROJECT_FILE
from spyweb.model import MIB, Durability, OnStoreError
from spyweb.permissions.policy import USUAL, Grants, policy_of
from spyweb.settings.addresses import address_template
from spyweb.settings.alerts import AlertSettings, take_channels, take_policy
from spyweb.settings.permissions import find_writable_program, take_grants
from spyweb.settings.reading import Reading, SettingsSource, unknown
from spyweb.settings.sections import (
    DATABASE,
    FILE,
    LOCK_NAME,
    MARKER,
    MEMORY,
    SECRETS,
    SHORTEST_PERIOD_MS,
    SOCKET,
    USER_DB,
    DaemonSettings,
    ExecSettings,
    HeartbeatSettings,
    HttpSettings,
    LogFormat,
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
from spyweb.settings.shapes import TEXT, Schema, shaped
from spyweb.settings.tables import TomlTable, parse_table
from spyweb.settings.units import DAY_MS, MINUTE_MS, SECOND_MS, format_duration, format_size
from spyweb.settings.values import (
    boolean,
    duration,
    headers,
    history,
    host_names,
    is_timezone,
    one_line,
    one_of,
    or_word,
    public_url,
    size,
    text,
    texts,
    timezone,
    whole,
)

SECTIONS = (
    *("daemon", "server", "store", "state", "runs", "records", "metrics", "telemetry", "http", "exec", "permissions"),
    *("security", "channels", "alerts", "heartbeat", "maintenance", "values", "defaults", "jobs"),
)

LISTS = ("maintenance",)  # sections that there may be several of, [[…]]

GIB = 1 << 30
SHORTEST_HEARTBEAT_MS = 10 * SECOND_MS
MOST_COMMANDS = 100  # at once: each has five descriptors, and the kernel keeps no more in one socket for certain
LEAST_MEMORY = 64 * MIB  # of a command; less would keep its nanny from starting it

_AGE = or_word("none", duration(SECOND_MS))
_MEMORY = or_word("none", size(LEAST_MEMORY, 1 << 50))
_PROCESSES = or_word("none", whole(1, 1_000_000))

_FLAGS = {
    "host": ("server", "host"),
    "port": ("server", "port"),
    "no_server": ("server", "enabled"),
    "workers": ("daemon", "workers"),
    "log_level": ("daemon", "log_level"),
}
_VARIABLES = {
    "SPYWEB_HOST": ("server", "host"),
    "SPYWEB_PORT": ("server", "port"),
    "SPYWEB_DISABLE_SERVER": ("server", "enabled"),
    "SPYWEB_LOG": ("daemon", "log_level"),
    "SPYWEB_THREADS": ("daemon", "workers"),
}
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def load_settings(root: Path, *, environ: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """Return the settings of the project at `root`.

    Flags are `host`, `port`, `no_server`, `workers` and `log_level`; None means that the flag was not given.
    """
    settings, problems = examine_settings(root, environ=environ, flags=flags)
    if problems:
        raise ConfigError(problems)
    return settings


def examine_settings(
    root: Path, *, environ: Mapping[str, str], flags: Mapping[str, object]
) -> tuple[Settings, list[Problem]]:
    """Return the settings, with the default in place of each wrong one, and the problems."""
    problems: list[Problem] = []
    file = read_table(root, problems)
    sections = _Sections(file, environ, flags, problems)
    settings = _settings(root, sections, environ)
    return settings, sorted(problems, key=Problem.place)


def _settings(root: Path, sections: _Sections, environ: Mapping[str, str]) -> Settings:
    daemon = _daemon(sections.read("daemon"), root, environ)
    permissions = take_grants(sections.read("permissions"), USUAL)
    return Settings(
        root=root,
        daemon=daemon,
        server=_server(sections.read("server"), root, environ, permissions),
        store=_store(sections.read("store"), root, daemon.data_dir),
        state=_state(sections.read("state")),
        runs=_runs(sections.read("runs")),
        records=_records(sections.read("records")),
        telemetry=_telemetry(sections.read("telemetry")),
        metrics=MetricsSettings(per_job=sections.read("metrics").take("per_job", boolean, True)),
        http=_http(sections.read("http")),
        exec=_exec(sections.read("exec")),
        security=_security(sections.read("security")),
        alerts=_alerts(sections, daemon.timezone),
        heartbeat=_heartbeat(sections.read("heartbeat")),
        maintenance=sections.tables("maintenance"),
        values=sections.table("values"),
        permissions=permissions,
        defaults=sections.table("defaults"),
        jobs=sections.finish(),
    )


def section_keys() -> Mapping[str, Mapping[str, Schema]]:
    """Return the JSON schema of every key of every section."""
    sections = _Sections(TomlTable(), {}, {}, [])
    _settings(Path(), sections, {})
    return sections.schemas()


def read_table(root: Path, problems: list[Problem]) -> TomlTable:
    """Return config.toml as it stands, and add what is wrong with it as a file."""
    try:
        content = read_file(root)
        text = content.decode("utf-8-sig").replace("\r\n", "\n") if len(content) <= PROJECT_FILE else ""
    except FileNotFoundError:
        return TomlTable(file=FILE)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problems.append(Problem(FILE, line, None, "is not UTF-8 text"))
        return TomlTable(file=FILE)
    except OSError as error:
        problems.append(Problem(FILE, None, None, f"can't be read: {error.strerror}"))
        return TomlTable(file=FILE)
    if len(content) > PROJECT_FILE:
        problems.append(Problem(FILE, None, None, f"is larger than {format_size(PROJECT_FILE)}"))
    table = parse_table(text, FILE)
    if isinstance(table, TomlTable):
        return table
    problems.append(table)
    return TomlTable(file=FILE)


def read_file(root: Path) -> bytes:
    """Return the content of config.toml; if it is too large, only its beginning.  Raises OSError."""
    with open_regular(root / FILE) as file:
        return file.read(PROJECT_FILE + 1)


class _Sections:
    """The file's sections, each read below the flags and variables, which take precedence."""

    def __init__(
        self, file: TomlTable, environ: Mapping[str, str], flags: Mapping[str, object], problems: list[Problem]
    ) -> None:
        self._file = file
        self.problems = problems
        self._stronger = [*_flag_sources(flags), *_variable_sources(environ)]
        self._readings: dict[str, Reading] = {}
        for name, value in file.values.items():
            if name not in SECTIONS:
                problems.append(file.problem(unknown("section", name, SECTIONS), name))
            elif not isinstance(value, Mapping) and name not in LISTS:
                problems.append(file.problem(f"expected a section, [{name}]", name))

    def read(self, section: str) -> Reading:
        sources = [source for name, source in self._stronger if name == section]
        reading = Reading([*sources, SettingsSource.of(self.table(section))], self.problems)
        self._readings[section] = reading
        return reading

    def schemas(self) -> Mapping[str, Mapping[str, Schema]]:
        return {section: reading.schema() for section, reading in self._readings.items()}

    def table(self, *path: str) -> TomlTable:
        return self._file.table(*path)

    def tables(self, section: str) -> tuple[TomlTable, ...]:
        """Return the tables of a section that there may be several of."""
        found = tuple(self._file.tables(section))
        given = self._file.values.get(section, [])
        if not isinstance(given, list) or len(found) < len(given):
            self.problems.append(self._file.problem(f"expected tables, each headed [[{section}]]", section))
        return found

    def finish(self) -> Mapping[str, TomlTable]:
        """Report unknown sections; return the tables under [jobs]."""
        for reading in self._readings.values():
            reading.finish()
        return self.named("jobs", "expected the settings of a job, [jobs.ID]")

    def named(self, section: str, expected: str) -> Mapping[str, TomlTable]:
        """Return the tables of a section whose keys are names."""
        found = self.table(section)
        for name, value in found.values.items():
            if not isinstance(value, Mapping):
                self.problems.append(found.problem(expected, name))
        return {name: found.table(name) for name, value in found.values.items() if isinstance(value, Mapping)}


def _flag_sources(flags: Mapping[str, object]) -> list[tuple[str, SettingsSource]]:
    sources = []
    for flag, value in flags.items():
        section, key = _FLAGS[flag]
        if value is None or (flag == "no_server" and value is False):
            continue
        given = False if flag == "no_server" else value
        sources.append((section, _named(key, given, "command line", f"--{flag.replace('_', '-')}")))
    return sources


def _variable_sources(environ: Mapping[str, str]) -> list[tuple[str, SettingsSource]]:
    return [
        (section, _named(key, _from_text(variable, environ[variable].strip()), "environment", variable))
        for variable, (section, key) in _VARIABLES.items()
        if environ.get(variable, "").strip()
    ]


def _named(key: str, value: object, origin: str, name: str) -> SettingsSource:
    return SettingsSource({key: value}, lambda reason, *_keys: Problem(origin, None, name, reason))


def _from_text(variable: str, value: str) -> object:
    """Return a variable's text as the value it stands for; the reader refuses a wrong one."""
    if variable == "SPYWEB_DISABLE_SERVER":
        return value.lower() in _NO if value.lower() in (*_YES, *_NO) else value
    if variable == "SPYWEB_LOG":
        return value.lower()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else value


def _daemon(read: Reading, root: Path, environ: Mapping[str, str]) -> DaemonSettings:
    return DaemonSettings(
        data_dir=root / read.take("data_dir", one_line, _default_data_dir(root)),
        timezone=read.take("timezone", timezone, "") or machine_timezone(environ),
        workers=read.take("workers", whole(1, 256), max(2, _cores())),
        default_interval_ms=read.take("default_interval", duration(SHORTEST_PERIOD_MS), 10 * MINUTE_MS),
        shutdown_grace_ms=read.take("shutdown_grace", duration(), 10 * SECOND_MS),
        log_level=read.take("log_level", _log_level, LogLevel.INFO),
        log_format=read.take("log_format", one_of(LogFormat), LogFormat.AUTO),
    )


def _default_data_dir(root: Path) -> str:
    """Return `data`, or `.spyweb` if `data` is a file, as SpyWeb's database is, or if that was chosen before."""
    is_file = os.path.isfile(root / "data")
    has_begun_elsewhere = os.path.exists(root / ".spyweb" / DATABASE) and not os.path.exists(root / "data" / DATABASE)
    return ".spyweb" if is_file or has_begun_elsewhere else "data"


def _server(read: Reading, root: Path, environ: Mapping[str, str], permissions: Grants) -> ServerSettings:
    own = read.below("permissions")
    policy = policy_of(take_grants(own, permissions), is_server=True)
    tls_cert, tls_key = (read.take(name, _file, "") for name in ("tls_cert", "tls_key"))
    if bool(tls_cert) is not bool(tls_key):
        read.refuse("expected both tls_cert and tls_key, or neither", "tls_key" if tls_key else "tls_cert")
    has_server = not own.is_empty or os.path.isdir(root / "server")
    if has_server and (reason := find_writable_program(policy, root, "server")):
        read.refuse(f"exec: {reason}", "permissions")
    port = read.take("port", whole(0, 65_535), 7979)
    dashboard_port = read.take("dashboard_port", whole(0, 65_535), 0)
    if dashboard_port and dashboard_port == port:
        read.refuse("expected another port than port", "dashboard_port")
    return ServerSettings(
        enabled=read.take("enabled", boolean, True),
        host=read.take("host", one_line, "127.0.0.1"),
        port=port,
        dashboard_port=dashboard_port,
        hosts=read.take("hosts", host_names, ()),
        public_url=read.take("public_url", public_url, ""),
        tls_cert=tls_cert,
        tls_key=tls_key,
        api_key=environ.get("SPYWEB_API_KEY", "").strip() or None,  # HTTP has no blanks at the ends
        permissions=policy,
    )


def _store(read: Reading, root: Path, data_dir: Path) -> StoreSettings:
    path = read.take("url", _store_path, "")
    if path and os.path.realpath(root / path) in {
        os.path.realpath(data_dir / name) for name in (USER_DB, LOCK_NAME, SOCKET, MARKER)
    }:
        read.refuse("expected a file of its own, not one that spyweb keeps something else in", "url")
    return StoreSettings(
        url=MEMORY if path == MEMORY else f"sqlite:///{root / path if path else data_dir / DATABASE}",
        durability=read.take("durability", one_of(Durability), Durability.FULL),
        on_error=read.take("on_error", one_of(OnStoreError), OnStoreError.LOG),
        key_file=read.take("key_file", _file, ""),
    )


def _state(read: Reading) -> StateSettings:
    return StateSettings(
        sweep_interval_ms=read.take("sweep_interval", duration(SECOND_MS), 5 * MINUTE_MS),
        max_value_bytes=read.take("max_value_bytes", size(1, GIB), MIB),
        max_key_bytes=read.take("max_key_bytes", size(1, MIB), 512),
        strict_locks=read.take("strict_locks", boolean, False),
        shared_agents=read.take("shared_agents", boolean, False),
        history=read.take("history", history, {}),
    )


def _runs(read: Reading) -> RunsSettings:
    return RunsSettings(
        keep=read.take("keep", whole(1, 1_000_000_000), 1_000),
        keep_for_ms=read.take("keep_for", duration(SECOND_MS), 30 * DAY_MS),
        keep_tasks=read.take("keep_tasks", whole(1, 1_000_000), 100),
    )


def _records(read: Reading) -> RecordsSettings:
    return RecordsSettings(
        keep=read.take("keep", whole(1, 1_000_000_000), 100_000),
        keep_for_ms=read.take("keep_for", _AGE, None),
        seen_for_ms=read.take("seen_for", duration(7 * DAY_MS), 365 * DAY_MS),
    )


def _telemetry(read: Reading) -> TelemetrySettings:
    return TelemetrySettings(
        otlp_endpoint=read.take("otlp_endpoint", _endpoint, ""), sample=read.take("sample", _sample, 1.0)
    )


def _http(read: Reading) -> HttpSettings:
    return HttpSettings(
        deny_private=read.take("deny_private", boolean, False),
        user_agent=read.take("user_agent", one_line, f"spyweb/{__version__}"),
        headers=read.take("headers", headers, ()),
        timeout_ms=read.take("timeout", duration(1), 30 * SECOND_MS),
        max_body_size=read.take("max_body_size", size(1, GIB), 10 * MIB),
    )


def _exec(read: Reading) -> ExecSettings:
    return ExecSettings(
        at_once=read.take("at_once", whole(1, MOST_COMMANDS), 16),
        memory=read.take("memory", _MEMORY, None),
        cpu_ms=read.take("cpu", _AGE, None),
        processes=read.take("processes", _PROCESSES, None),
    )


def _alerts(sections: _Sections, zone: str) -> AlertSettings:
    tables = sections.named("channels", "expected the settings of a channel, [channels.NAME]")
    channels = take_channels(tables, zone, sections.problems)
    policy = take_policy(sections.read("alerts"), NOBODY, tables, zone)
    return AlertSettings(channels=channels, policy=policy, names=frozenset(tables), table=sections.table("alerts"))


def _heartbeat(read: Reading) -> HeartbeatSettings:
    url = read.take("url", address_template, "")
    every_ms = read.take("every", duration(SHORTEST_HEARTBEAT_MS, DAY_MS), MINUTE_MS)
    if read.has("every") and not url and not read.has("url"):
        read.refuse(f"every {format_duration(every_ms)}, but where to? url has the address", "every")
    return HeartbeatSettings(url=url, every_ms=every_ms)


def _security(read: Reading) -> SecuritySettings:
    return SecuritySettings(env_deny=read.take("env_deny", texts, SECRETS))


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


@shaped({"enum": [*(level.value for level in LogLevel), "warn"]}, str)
def _log_level(value: object) -> LogLevel:
    return one_of(LogLevel)("warning" if value == "warn" else value)


def _show_url(path: str) -> str:
    return f"sqlite:///{path or f'data/{DATABASE}'}"


@shaped({"type": "string", "pattern": "^(memory:|sqlite:///.+)$"}, _show_url)
def _store_path(value: object) -> str:
    url = one_line(value)
    if url == MEMORY:
        return url
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        raise ValueError(f'expected "sqlite:///" and the path of a file, or "{MEMORY}", not {url[:80]!r}')
    return url.removeprefix("sqlite:///")


@shaped(TEXT)
def _file(value: object) -> str:
    return one_line(value) if value else text(value)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_timezone(environ: Mapping[str, str]) -> str:
    """Return the name of the machine's own time zone, or UTC."""
    names = (environ.get("TZ", "").removeprefix(":"), _linked_zone(), _written_zone())
    return next((name for name in names if name and is_timezone(name)), "UTC")


def _linked_zone() -> str:
    return os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]


def _written_zone() -> str:
    try:
        return Path("/etc/timezone").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
