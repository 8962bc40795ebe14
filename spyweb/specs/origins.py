"""List the settings of a job with the value and the source of each.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from spyweb.logs.secrets import HIDDEN, Secrets, is_secret
from spyweb.model import JobSpec
from spyweb.permissions.policy import USUAL, Grants
from spyweb.settings.sections import FILE
from spyweb.settings.tables import TomlTable
from spyweb.specs.parse import PERMISSIONS, PING_URL, SCHEDULES, job_keys
from spyweb.words import cut

LONGEST_VALUE = 500  # characters that are shown of one
MERGED = "values"  # what every source has is laid over each other
PLAIN_HEADERS = frozenset({"accept", "accept-language", "content-type", "referer", "user-agent"})
_URL_SECRETS = Secrets()
_QUERY_SECRET = re.compile(r"([?&][^=&#]*(?:key|token|secret|passw|auth|sig)[^=&#]*=)[^&#]+", re.IGNORECASE)


class OriginKind(StrEnum):
    FILE = "file"  # the job's own
    OVERRIDE = "override"  # [jobs.ID] in config.toml
    PERMISSIONS = "permissions"  # [permissions] in config.toml
    DEFAULTS = "defaults"  # [defaults] in config.toml
    BUILT_IN = "built in"


class ResolvedSetting(Struct, frozen=True, kw_only=True):
    key: str
    value: str  # as a file would write it; of a secret, that it is hidden
    origin: OriginKind
    file: str = ""  # empty: built in
    line: int | None = None
    words: str  # "config.toml:12, [defaults]"


def resolve_settings(spec: JobSpec, sources: Sequence[TomlTable], granted: Grants) -> list[ResolvedSetting]:
    """Return every setting of a job in the order of the reference; `sources` are what its spec was parsed from."""
    kinds = (OriginKind.OVERRIDE, OriginKind.FILE, OriginKind.DEFAULTS)
    has_schedule = any(key in source.values for source in sources for key in SCHEDULES)
    found: list[ResolvedSetting] = []
    for key, schema in job_keys(is_monitor=spec.monitor is not None, check=spec.check or "").items():
        having = [(kind, source) for kind, source in zip(kinds, sources, strict=False) if key in source.values]
        if having:
            found.append(_given(key, having, spec.id))
        elif key == PERMISSIONS and granted != USUAL:
            words, kind = f"{FILE}, [{PERMISSIONS}]", OriginKind.PERMISSIONS
            found.append(ResolvedSetting(key=key, value="", origin=kind, file=FILE, words=words))
        elif key == PERMISSIONS or ("default" in schema and not (has_schedule and key in SCHEDULES)):
            value = write(key, schema.get("default", {}))
            found.append(ResolvedSetting(key=key, value=value, origin=OriginKind.BUILT_IN, words="built in"))
    return found


def _given(key: str, having: Sequence[tuple[OriginKind, TomlTable]], job: str) -> ResolvedSetting:
    kind, source = having[0]
    value = source.values[key]
    if key == MERGED:
        tables = [each.values[key] for _, each in reversed(having)]
        value = {name: inner for table in tables if isinstance(table, Mapping) for name, inner in table.items()}
    place = source.problem("", key)
    of_all = ", [defaults] and [values]" if key == MERGED else ", [defaults]"
    section = {OriginKind.OVERRIDE: f", [jobs.{job}]", OriginKind.DEFAULTS: of_all}.get(kind, "")
    where = place.file if place.line is None else f"{place.file}:{place.line}"
    words = f"{where}{section}" + (f", over {len(having) - 1} more" if key == MERGED and len(having) > 1 else "")
    return ResolvedSetting(key=key, value=write(key, value), origin=kind, file=place.file, line=place.line, words=words)


def write(key: str, value: object) -> str:
    """Write a value as a file would, without secrets."""
    if is_secret(key):
        return HIDDEN
    if key == PING_URL:  # often all that one needs to know
        value = {name: _host_of(str(inner)) for name, inner in value.items()} if isinstance(value, Mapping) else value
        value = _host_of(value) if isinstance(value, str) else value
    text = _write(_without_secrets(key, value))
    return cut(text, LONGEST_VALUE)


def _without_secrets(key: str, value: object) -> object:
    """Hide the values of most headers, and all of a webhook's address but its host."""
    if not isinstance(value, Mapping):
        return value
    if key == "headers":
        return {name: inner if str(name).lower() in PLAIN_HEADERS else HIDDEN for name, inner in value.items()}
    if key == "webhook":
        address = value.get("url")
        shown = {**value, "url": _host_of(address)} if isinstance(address, str) else value
        return {name: _without_secrets(str(name), inner) for name, inner in shown.items()}
    return value


def _host_of(address: str) -> str:
    try:
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.hostname}/{HIDDEN}" if parts.hostname else HIDDEN
    except ValueError:
        return HIDDEN


def _write(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return msgspec.json.encode(_QUERY_SECRET.sub(rf"\1{HIDDEN}", _URL_SECRETS.hide_in_text(value))).decode()
        case Mapping():
            parts = (f"{name} = {HIDDEN if is_secret(name) else _write(inner)}" for name, inner in value.items())
            return f"{{ {', '.join(parts)} }}" if value else "{}"
        case list() | tuple():
            return f"[{', '.join(map(_write, value))}]"
        case _:
            return str(value)
