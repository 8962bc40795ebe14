"""Make a JSON Schema of the project's TOML files from the keys that the parser asks for."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from importlib.resources import files
from itertools import combinations

from spyweb.checks.settings import ANY_CHECK, CHECK, CheckKind
from spyweb.settings.alerts import NAME, channel_keys
from spyweb.settings.load import section_keys
from spyweb.settings.reading import Schema, list_of, table_of
from spyweb.specs.maintenance import maintenance_keys
from spyweb.specs.monitor_file import ADDRESSES, REQUIRED
from spyweb.specs.parse import EXPECT, NOT_IN_DEFAULTS, SCHEDULES, job_keys, required_keys

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OF_THE_MACHINE = {"cluster.name", "daemon.timezone", "daemon.workers", "timezone"}  # so their defaults differ
WORDS = tomllib.loads((files("spyweb.reference") / "settings.toml").read_text(encoding="utf-8"))
JOB, SETTINGS = ({**WORDS[section], **WORDS["both"]} for section in ("job", "settings"))
CHECKS = {**JOB, **WORDS["check"]}
ONE_SCHEDULE = [{"not": {"required": list(pair)}} for pair in combinations(SCHEDULES, 2)]


def job_schema() -> Schema:
    """Return the schema of a monitor's file, and of the file that lists several."""
    checks = {kind.value: _check_schema(kind.value) for kind in CheckKind}
    monitor = {
        **table_of(explain(job_keys(is_monitor=True), JOB)),
        "if": {"required": [EXPECT]},  # it runs elsewhere
        "else": {"required": list(REQUIRED), "anyOf": [{"required": [key]} for key in ADDRESSES]},
        "allOf": ONE_SCHEDULE,
    }
    jobs = table_of({"jobs": list_of({"$ref": "#/$defs/job"})})
    return {
        "$schema": DIALECT,
        "title": "spyweb: a check, a monitor's config.toml, or jobs.toml",
        "if": {"required": ["jobs"]},
        "then": {"$ref": "#/$defs/jobs"},
        "else": {"$ref": "#/$defs/job"},
        "$defs": {"job": _by_kind(checks), "monitor": monitor, "jobs": jobs, **checks},
    }


def _check_schema(kind: str) -> Schema:
    keys = {**explain(job_keys(check=kind), CHECKS), CHECK: {"const": kind, "description": CHECKS[CHECK]}}
    return {**table_of(keys, CHECK, *required_keys(kind)), "allOf": ONE_SCHEDULE}


def _by_kind(checks: Collection[str]) -> Schema:
    """Return the schema of a job: of a check by its kind, otherwise of a monitor."""
    chosen = [{"if": {"properties": {CHECK: {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}"}} for kind in checks]
    kinds = {"properties": {CHECK: {"enum": [*checks]}}}
    return {"if": {"required": [CHECK]}, "then": {**kinds, "allOf": chosen}, "else": {"$ref": "#/$defs/monitor"}}


def config_schema() -> Schema:
    sections = {section: table_of(explain(keys, SETTINGS, f"{section}.")) for section, keys in section_keys().items()}
    properties = {
        **sections,
        "channels": {
            "type": "object",
            "propertyNames": {"pattern": NAME},
            "additionalProperties": table_of(explain(channel_keys(), WORDS["channel"])),
            "description": "The notification channels, by name.",
        },
        "maintenance": {
            **list_of(table_of(explain(maintenance_keys(), WORDS["maintenance"]))),
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


def _overrides(*, is_monitor: bool, without: Collection[str] = ()) -> Schema:
    """Return the keys that can be set from outside a job's own file: all but its name."""
    keys = explain(job_keys(is_monitor=is_monitor), JOB)
    if is_monitor:
        of_checks = explain(job_keys(check=ANY_CHECK), CHECKS)
        either = {**keys[EXPECT], "anyOf": [{"enum": keys[EXPECT]["enum"]}, of_checks[EXPECT]]}
        either.pop("enum")
        others = {key: of for key, of in of_checks.items() if key not in keys}
        keys = {**keys, EXPECT: either, **others}
    without = (*without, "name", CHECK)
    return {
        **table_of({key: value for key, value in keys.items() if key not in without}),
        "allOf": ONE_SCHEDULE,
    }


def explain(keys: Mapping[str, Schema], words: Mapping[str, str], prefix: str = "") -> dict[str, Schema]:
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
        explained["properties"] = explain(inner, words, prefix)
    if isinstance(others, list):
        explained["anyOf"] = [_explain_inside(each, words, prefix) for each in others]
    return explained
