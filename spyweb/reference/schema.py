"""Make a JSON Schema of the project's TOML files, and config.example.toml, from the keys that the parser asks for."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from itertools import combinations

from spyweb.settings.alerts import NAME, channel_keys
from spyweb.settings.load import section_keys
from spyweb.settings.reading import Schema, list_of, table_of
from spyweb.settings.words import CHANNEL, JOB, MAINTENANCE, SETTINGS
from spyweb.specs.maintenance import maintenance_keys
from spyweb.specs.monitor_file import ADDRESSES, REQUIRED
from spyweb.specs.parse import EXPECT, NOT_IN_DEFAULTS, PERMISSIONS, SCHEDULES, job_keys

EXAMPLE = "config.example.toml"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
OF_THE_MACHINE = {"cluster.name", "daemon.timezone", "daemon.workers", "timezone"}  # so their defaults differ
# What the example has of keys without a default, or in place of one.
EXAMPLES: Mapping[str, object] = {
    "timezone": "UTC",
    "workers": 2,
    "cluster.name": "fra",
    "http.user_agent": "spyweb/VERSION",
    "every": "10m",
    "cron": "0 3 * * sun",
    "at": "2026-12-24T18:00:00Z",
    "hook": {"secret": "env:NAME", "hmac": "github", "headers": ["x-github-event"]},
    "ping_url": "https://hc-ping.com/${PING_KEY}/{job}",
    "history": 20,
    "on_store_error": "raise",
    "drift": "1h",
    "expect": "ping",
    "grace": "1h",
    "url": "https://example.com/",
    "urls": ["https://example.com/"],
    "selector": ".item",
    "fields": ["title:h2", "link:a@href"],
    "interval": "10m",
    "min_items": 0,
    "proxy.urls": ["http://proxy:8080"],
    "webhook.url": "https://example.com/hook",
    "webhook.secret": "env:HOOK_SECRET",
    "notification.title": "{item_count} new",
    "notification.body": "{title}",
    "notification.timeout": 5000,
    "channels.url": "ntfy://${TOPIC}",
    "channels.url_file": "secrets/phone",
    "channels.webhook": "https://example.org/hook/${OPS_TOKEN}",
    "channels.desktop": True,
    "channels.secret": "env:OPS_SECRET",
    "channels.secret_file": "secrets/ops",
    "duration": "2h",
    "maintenance.start": "2026-12-24T18:00:00Z",
    "end": "2026-12-25T06:00:00Z",
}
PREFACE = """\
# Every setting of spyweb, each with its default.  Copy to config.toml and take the # off what you want to change.
#
# A duration is a number of seconds, or text such as "1h30m" or "250ms"; a size is a number of bytes, or text such as
# "64MB".  A command-line flag or a SPYWEB_* variable is stronger than this file.  docs/reference/settings.md says more.
"""
HEADS = {  # of tables that are no plain section
    "channels": "# [channels.ops]",
    "maintenance": "# [[maintenance]]",
    "values": '[values]\n# host = "web1"',
    "jobs": "# Those of [defaults], [permissions] and [alerts] too; stronger than its own file.\n# [jobs.my_job]",
}
OF_PINGS = ("expect", "grace")
ONE_SCHEDULE = [{"not": {"required": list(pair)}} for pair in combinations(SCHEDULES, 2)]


def job_schema() -> Schema:
    """Return the schema of a monitor's file, and of the file that lists several."""
    monitor = {
        **table_of(_explained(job_keys(is_monitor=True), JOB)),
        "if": {"required": [EXPECT]},  # it runs elsewhere
        "else": {"required": list(REQUIRED), "anyOf": [{"required": [key]} for key in ADDRESSES]},
        "allOf": ONE_SCHEDULE,
    }
    jobs = table_of({"jobs": list_of({"$ref": "#/$defs/monitor"})})
    return {
        "$schema": DIALECT,
        "title": "spyweb: a monitor's config.toml, or jobs.toml",
        "if": {"required": ["jobs"]},
        "then": {"$ref": "#/$defs/jobs"},
        "else": {"$ref": "#/$defs/monitor"},
        "$defs": {"monitor": monitor, "jobs": jobs},
    }


def config_schema() -> Schema:
    sections = {
        section: table_of(_explained(keys, SETTINGS, f"{section}.")) for section, keys in section_keys().items()
    }
    properties = {
        **sections,
        "channels": {
            "type": "object",
            "propertyNames": {"pattern": NAME},
            "additionalProperties": table_of(_explained(channel_keys(), CHANNEL)),
            "description": "The notification channels, by name.",
        },
        "maintenance": {
            **list_of(table_of(_explained(maintenance_keys(), MAINTENANCE))),
            "description": "Times in which failing jobs notify nobody.",
        },
        "values": {"type": "object", "description": "What scripts see in their table `values`."},
        "defaults": {**_overrides(is_monitor=False, without=NOT_IN_DEFAULTS), "description": "Settings of every job."},
        "jobs": {
            "type": "object",
            "additionalProperties": _overrides(is_monitor=True),
            "description": "Settings of one job, by its id.",
        },
    }
    return {"$schema": DIALECT, "title": "spyweb: config.toml", **table_of(properties)}


def keys_of(section: str) -> Mapping[str, Schema]:
    """Return the explained keys of a section of config.toml, or of a `job` or `monitor`.  Raises KeyError."""
    if section in ("job", "monitor"):
        return _explained(job_keys(is_monitor=section == "monitor"), JOB)
    properties = config_schema()["properties"]
    assert isinstance(properties, Mapping)
    inner = properties[section]
    table: Schema = inner.get("items") or inner.get("additionalProperties") or inner
    keys = table["properties"]
    assert isinstance(keys, Mapping)
    return keys


def _overrides(*, is_monitor: bool, without: Container[str] = ()) -> Schema:
    """Return the keys that can be set from outside a job's own file: all but its name."""
    keys = _explained(job_keys(is_monitor=is_monitor), JOB)
    return {
        **table_of({key: value for key, value in keys.items() if key != "name" and key not in without}),
        "allOf": ONE_SCHEDULE,
    }


def _explained(keys: Mapping[str, Schema], words: Mapping[str, str], prefix: str = "") -> dict[str, Schema]:
    """Add a description to each key, and drop the defaults that are not the same everywhere."""
    found: dict[str, Schema] = {}
    for key, value in keys.items():
        name = prefix + key
        found[key] = explained = _explain_inside(value, words, f"{name}.")
        if name in words:
            explained["description"] = words[name]
        if name in OF_THE_MACHINE:
            explained.pop("default", None)
    return found


def _explain_inside(value: Schema, words: Mapping[str, str], prefix: str) -> dict[str, object]:
    """Explain the keys of a table, also of one that a value may be instead of something else."""
    explained, inner, others = dict(value), value.get("properties"), value.get("anyOf")
    if isinstance(inner, Mapping):
        explained["properties"] = _explained(inner, words, prefix)
    if isinstance(others, list):
        explained["anyOf"] = [_explain_inside(each, words, prefix) for each in others]
    return explained


def example() -> str:
    """Return config.example.toml: every key, commented out, with its default and its purpose."""
    sections = config_schema()["properties"]
    assert isinstance(sections, Mapping)
    return PREFACE + "".join("\n" + "\n".join(_example_of(*each)) + "\n" for each in sections.items())


def _example_of(section: str, shape: Mapping[str, object]) -> Iterator[str]:
    if "description" in shape:
        yield f"# {shape['description']}"
    head = HEADS.get(section, f"[{section}]")
    yield head
    indent = "  " if head.startswith("#") else ""
    for key, value in _keys_of(section, shape).items():
        yield f"# {indent and '  # '}{value['description']}"
        yield f"# {indent}{key} = {_example_value(section, key, value)}"


def _keys_of(section: str, shape: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    """Return the keys of a section; of [jobs.ID] the keys that no other section has."""
    inner = shape.get("items", shape.get("additionalProperties")) or shape
    keys = inner.get("properties", {}) if isinstance(inner, Mapping) else {}
    assert isinstance(keys, Mapping)
    elsewhere = job_keys(is_monitor=False).keys() - OF_PINGS if section == "jobs" else {PERMISSIONS, *OF_PINGS}
    return {key: value for key, value in keys.items() if key not in elsewhere}


def _example_value(section: str, key: str, shape: Mapping[str, object]) -> str:
    if f"{section}.{key}" in EXAMPLES:
        return as_toml(EXAMPLES[f"{section}.{key}"])
    if "default" in shape or key in EXAMPLES:
        return as_toml(shape.get("default", EXAMPLES.get(key)))
    inner = shape["properties"]
    assert isinstance(inner, Mapping)
    return f"{{ {', '.join(f'{name} = {_example_value(key, name, each)}' for name, each in inner.items())} }}"


def as_toml(value: object) -> str:
    """Write a value as TOML, which is as JSON does, but for tables and moments."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {as_toml(each)}' for key, each in value.items())} }}" if value else "{}"
    text = json.dumps(value, ensure_ascii=False)
    return text.strip('"') if text.endswith(':00Z"') else text
