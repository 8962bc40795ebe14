"""Load the daemon's own settings: command-line flag > SPYWEB_* variable > config.toml > default.

`load_settings` raises one ConfigError that carries every problem.  `[defaults]`, `[jobs.ID]` and `[[maintenance]]` are
kept as they stand, for specs/parse.py and specs/maintenance.py.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from spyweb.errors import ConfigError, Problem
from spyweb.incidents.policy import NOBODY
from spyweb.limits import URL
from spyweb.permissions.policy import USUAL, Grants, policy_of
from spyweb.settings.addresses import read_secret
from spyweb.settings.alerts import AlertSettings, take_channels, take_policy
from spyweb.settings.permissions import find_writable_program, take_grants
from spyweb.settings.reading import Reading, Schema, Tables, nearest, shaped, told
from spyweb.settings.sections import (
    DATABASE,
    FILE,
    LOCK_NAME,
    MARKER,
    MEMORY,
    POSTGRES,
    SETTING,
    SOCKET,
    USER_DB,
    ClusterSettings,
    DaemonSettings,
    HeartbeatSettings,
    ServerSettings,
    Settings,
    StatusPageSettings,
    StoreSettings,
)
from spyweb.settings.tables import TomlTable, read_text, read_toml
from spyweb.settings.units import format_duration
from spyweb.settings.values import NODE, is_timezone, line, node_name, one_line, texts, timezone, whole

S = TypeVar("S")

SECTIONS = (*(each.name for each in fields(Settings) if each.name != "root"), "channels")
# The sections that are read key by key, whatever the others say.
_PLAIN: dict[str, Any] = {
    each.name: each.default_factory
    for each in fields(Settings)
    if each.name in ("state", "runs", "records", "backup", "metrics", "telemetry", "http", "exec", "security")
}
LISTS = ("maintenance",)  # sections that there may be several of, [[…]]

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
    "SPYWEB_STORE_URL": ("store", "url"),
    "SPYWEB_NODE": ("cluster", "name"),
    "SPYWEB_NODE_URL": ("cluster", "url"),
    "SPYWEB_NODE_LABELS": ("cluster", "labels"),
}
_STORES = f'"sqlite:///" and the path of a file, "{POSTGRES[0]}USER@HOST/DATABASE" or "{MEMORY}"'
_POSTGRES = re.compile(
    r"postgres(?:ql)?://(?:[^:@/?#\s]*(?::(?P<password>[^@/?#\s]*))?@)?[^@/?#\s]*/[^@/?#\s]+(?:\?[^#\s]*)?"
)
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def load_settings(root: Path, *, environ: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """Return the settings of a project; a flag of `_FLAGS` that is None was not given."""
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
        store=_store(sections.read("store"), root, daemon.data_dir, environ),
        cluster=_cluster(sections.read("cluster")),
        **{name: take_section(sections.read(name), kind) for name, kind in _PLAIN.items()},
        alerts=_alerts(sections, daemon.timezone),
        heartbeat=_heartbeat(sections.read("heartbeat")),
        status_page=_status_page(sections),
        maintenance=tuple(sections.file.tables("maintenance", sections.problems)),
        values=sections.file.table("values"),
        permissions=permissions,
        defaults=sections.file.table("defaults"),
        jobs=sections.finish(),
    )


def section_keys() -> Mapping[str, Mapping[str, Schema]]:
    sections = _Sections(TomlTable(), {}, {}, [])
    _settings(Path(), sections, {})
    return {section: reading.schema() for section, reading in sections.readings.items()}


def read_table(root: Path, problems: list[Problem]) -> TomlTable:
    """Return config.toml as it is, and add its problems as a file."""
    table = read_toml(root, FILE, may_lack=True)
    if isinstance(table, TomlTable):
        return table
    problems.append(table)
    return TomlTable(file=FILE)


def is_emptied(root: Path) -> bool:
    """Return whether the file exists and is empty: editors, and `>`, empty a file before they write it."""
    source = read_text(root, FILE)
    return isinstance(source, bytes) and not source.strip()


class _Sections:
    """The sections of the file; flags and variables take precedence over each."""

    def __init__(
        self, file: TomlTable, environ: Mapping[str, str], flags: Mapping[str, object], problems: list[Problem]
    ) -> None:
        self.file = file
        self.problems = problems
        self._stronger = list(_stronger(flags, environ))
        self.readings: dict[str, Reading] = {}
        for name, value in file.values.items():
            if name not in SECTIONS:
                problems.append(file.problem(f"unknown section{nearest(name, SECTIONS)}", name))
            elif not isinstance(value, Mapping) and name not in LISTS:
                problems.append(file.problem(f"expected a section, [{name}]", name))

    def read(self, section: str) -> Reading:
        sources = [source for name, source in self._stronger if name == section]
        reading = Reading([*sources, self.file.table(section)], self.problems)
        self.readings[section] = reading
        return reading

    def finish(self) -> Mapping[str, TomlTable]:
        """Report unknown sections; return the tables under [jobs]."""
        for reading in self.readings.values():
            reading.finish()
        return self.named("jobs", "expected the settings of a job, [jobs.ID]")

    def named(self, section: str, expected: str) -> Mapping[str, TomlTable]:
        """Return the tables of a section whose keys are names."""
        found = self.file.table(section)
        for name, value in found.values.items():
            if not isinstance(value, Mapping):
                self.problems.append(found.problem(expected, name))
        return {name: found.table(name) for name, value in found.values.items() if isinstance(value, Mapping)}


def _stronger(flags: Mapping[str, object], environ: Mapping[str, str]) -> Iterator[tuple[str, TomlTable]]:
    """Yield the sources that are stronger than the file, the strongest first, each with its section."""
    for flag, value in flags.items():
        if value is not None and not (flag == "no_server" and value is False):
            section, key = _FLAGS[flag]
            given = {key: False if flag == "no_server" else value}
            yield section, _Named(values=given, file="command line", name=f"--{flag.replace('_', '-')}")
    for variable, (section, key) in _VARIABLES.items():
        if text := environ.get(variable, "").strip():
            yield section, _Named(values={key: _from_text(variable, text)}, file="environment", name=variable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named(TomlTable):
    """A flag or a variable; problems name it instead of the key."""

    name: str

    def problem(self, reason: str, *_keys: str) -> Problem:
        return Problem(self.file, None, self.name, reason)


def _from_text(variable: str, value: str) -> object:
    """Return the value that a variable's text stands for; the reader refuses a wrong one."""
    if variable == "SPYWEB_DISABLE_SERVER":
        return value.lower() in _NO if value.lower() in (*_YES, *_NO) else value
    if variable == "SPYWEB_NODE_LABELS":
        return [name.strip() for name in value.split(",")]
    if variable == "SPYWEB_LOG":
        return value.lower()
    if not variable.endswith(("PORT", "THREADS")):
        return value
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else value


def take_section(read: Reading, kind: Callable[..., S], **known: object) -> S:
    """Read a section: each key by the reader of its field, in addition to the known values."""
    for each in fields(cast("Any", kind)):
        if shape := each.metadata.get(SETTING):
            default = cast("Callable[[], object]", each.default_factory)()
            known[each.name] = read.take(each.name.removesuffix("_ms"), shape, default)
    return kind(**known)


def _daemon(read: Reading, root: Path, environ: Mapping[str, str]) -> DaemonSettings:
    data_dir = told(one_line, "The folder of everything that is stored.")
    zone = told(timezone, "The time zone of cron expressions and os.date; the machine's if none is set.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = told(whole(1, 256), "The number of processes that run Lua; default: one per core, at least 2.")
    # SpyWeb's database is a file `data`; a project that began with `.spyweb` keeps using it.
    has_begun_elsewhere = os.path.exists(root / ".spyweb" / DATABASE) and not os.path.exists(root / "data" / DATABASE)
    usual_dir = ".spyweb" if os.path.isfile(root / "data") or has_begun_elsewhere else "data"
    return take_section(
        read,
        DaemonSettings,
        data_dir=root / read.take("data_dir", data_dir, usual_dir),
        timezone=read.take("timezone", zone, "") or machine_timezone(environ),
        workers=read.take("workers", workers, max(2, cores)),
    )


def _server(read: Reading, root: Path, environ: Mapping[str, str], permissions: Grants) -> ServerSettings:
    own = read.below("permissions")
    policy = policy_of(take_grants(own, permissions), is_server=True)
    has_server = not own.is_empty or os.path.isdir(root / "server")
    if has_server and (reason := find_writable_program(policy, root, "server")):
        read.refuse(f"exec: {reason}", "permissions")
    api_key = environ.get("SPYWEB_API_KEY", "").strip() or None  # HTTP has no blanks at the ends
    server = take_section(read, ServerSettings, api_key=api_key, permissions=policy)
    if bool(server.tls_cert) is not bool(server.tls_key):
        read.refuse("expected both tls_cert and tls_key, or neither", "tls_key" if server.tls_key else "tls_cert")
    if server.dashboard_port and server.dashboard_port == server.port:
        read.refuse("expected another port than port", "dashboard_port")
    return server


def _store(read: Reading, root: Path, data_dir: Path, environ: Mapping[str, str]) -> StoreSettings:
    found = read.take("url", told(_store_url, f"{_STORES}."), "")
    if parts := _POSTGRES.fullmatch(found):
        password = parts["password"] or ""
        url = found.replace(f":{password}@", "@", 1) if password else found
        store = take_section(read, StoreSettings, url=url)
        return replace(store, hidden=unquote(password) or os.fsdecode(read_secret(store.password, environ)))
    taken = (data_dir / name for name in (USER_DB, LOCK_NAME, SOCKET, MARKER))
    if found and os.path.realpath(root / found) in map(os.path.realpath, taken):
        read.refuse("expected a separate file, not one that spyweb uses for something else", "url")
    url = MEMORY if found == MEMORY else f"sqlite:///{root / found if found else data_dir / DATABASE}"
    return take_section(read, StoreSettings, url=url)


def store_at(url: str, settings: Settings, environ: Mapping[str, str]) -> StoreSettings:
    """Return the settings of a store as if config.toml had this url.  Raises ConfigError."""
    problems: list[Problem] = []
    given = _Named(values={"url": url, "password": settings.store.password}, file="command line", name="URL")
    store = _store(Reading([given], problems), settings.root, settings.daemon.data_dir, environ)
    if problems:
        raise ConfigError(problems)
    return replace(settings.store, url=store.url, hidden=store.hidden)


def _cluster(read: Reading) -> ClusterSettings:
    host = platform.node().partition(".")[0].lower()
    name = told(node_name, "The name of this node, no other's; by default the host's.")
    usual = host if re.fullmatch(NODE, host) and host else "node"
    cluster = take_section(read, ClusterSettings, name=read.take("name", name, "") or usual)
    if cluster.beat_ms * 4 > cluster.lease_ms:
        at_most = format_duration(cluster.lease_ms // 4)
        read.refuse(f"must be at most a quarter of lease: {at_most}", "beat" if read.has("beat") else "lease")
    if cluster.only_labels and not cluster.labels and not read.has("labels"):
        read.refuse("this node has no labels: set labels as well", "only_labels")
    return cluster


def _alerts(sections: _Sections, zone: str) -> AlertSettings:
    tables = sections.named("channels", "expected the settings of a channel, [channels.NAME]")
    channels = take_channels(tables, zone, sections.problems)
    policy = take_policy(sections.read("alerts"), NOBODY, tables, zone)
    return AlertSettings(channels=channels, policy=policy, names=frozenset(tables), table=sections.file.table("alerts"))


def _status_page(sections: _Sections) -> StatusPageSettings | None:
    read, table = sections.read("status_page"), sections.file.table("status_page")
    groups: tuple[tuple[str, tuple[str, ...]], ...] = read.tables("groups", _GROUPS, ())
    page = take_section(read, StatusPageSettings, groups=groups, table=table)
    names = [name.casefold() for name, _ in groups]
    for place, name in enumerate(names):
        if name in names[:place]:
            read.refuse("another group has this name", f"groups[{place + 1}]", "name")
    if "status_page" not in sections.file.values:
        return None
    if not read.has("groups") and not read.has("tags"):
        read.refuse("is required, or tags: a status page shows only jobs that are named", "groups")
    return page


def _take_group(read: Reading) -> tuple[str, tuple[str, ...]]:
    read.require("name", "jobs")
    return read.take("name", line(80), ""), read.take("jobs", texts, ())


_GROUPS = Tables(take=_take_group, expected='tables such as { name = "Web", jobs = ["site"] }', most=50)


def _heartbeat(read: Reading) -> HeartbeatSettings:
    heartbeat = take_section(read, HeartbeatSettings)
    if read.has("every") and not heartbeat.url and not read.has("url"):
        read.refuse(f"every {format_duration(heartbeat.every_ms)}, but without an address: set url", "every")
    return heartbeat


@shaped(
    {"type": "string", "pattern": "^(memory:|sqlite:///.+|postgres(ql)?://.+)$"}, lambda _: f"sqlite:///data/{DATABASE}"
)
def _store_url(value: object) -> str:
    """Read the url; of a file return its path.  No error repeats what may hold a password."""
    url = one_line(value).strip()
    if url == MEMORY:
        return url
    if url.startswith(POSTGRES):
        if len(url) > URL or not _POSTGRES.fullmatch(url):
            raise ValueError(f'expected "{POSTGRES[0]}USER@HOST/DATABASE"; in it / @ : and % are written as %XX')
        if "password=" in unquote(url).lower():
            raise ValueError("a password does not stand after the ?: expected SPYWEB_STORE_PASSWORD, or ~/.pgpass")
        return url
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        raise ValueError(f"expected {_STORES}, not {url.partition('://')[0][:80]!r}")
    return url.removeprefix("sqlite:///")


def machine_timezone(environ: Mapping[str, str]) -> str:
    names = [environ.get("TZ", "").removeprefix(":"), os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]]
    with suppress(OSError, UnicodeDecodeError):
        names.append(Path("/etc/timezone").read_text(encoding="utf-8").strip())
    return next((name for name in names if name and is_timezone(name)), "UTC")
