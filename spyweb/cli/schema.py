"""`spyweb schema`: print a JSON Schema of the project's TOML files, so that an editor completes and checks them.

Made from what the parser itself asks for: a key that it takes is here, and no other.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import StrEnum
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.settings.alerts import NAME, channel_keys
from spyweb.settings.load import section_keys
from spyweb.settings.shapes import Schema, list_of, table_of
from spyweb.settings.words import CHANNEL, JOB, MAINTENANCE, SETTINGS
from spyweb.specs.maintenance import maintenance_keys
from spyweb.specs.monitor_file import ADDRESSES, REQUIRED
from spyweb.specs.parse import EXPECT, NOT_IN_DEFAULTS, SCHEDULES, job_keys

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OF_THE_MACHINE = {"daemon.timezone", "daemon.workers", "timezone"}  # so their defaults differ


class SchemaKind(StrEnum):
    JOB = "job"
    CONFIG = "config"


def schema(
    kind: Annotated[
        SchemaKind, typer.Argument(metavar="[job|config]", help="`job`: a monitor's config.toml, and jobs.toml.")
    ] = SchemaKind.JOB,
) -> None:
    """Print a JSON Schema of the files of settings.

    For editors: `job` is about a monitor's config.toml and about jobs.toml, `config` about the project's config.toml.
    """
    output.show_json(job_schema() if kind is SchemaKind.JOB else config_schema())


def job_schema() -> Schema:
    """Return the schema of a monitor's file, and of the file that lists several."""
    keys = _explained(job_keys(is_monitor=True), JOB)
    one_address = {"anyOf": [{"required": [key]} for key in ADDRESSES]}
    of_monitors = {"required": list(REQUIRED), **one_address}
    monitor = {
        **table_of(keys),
        "if": {"required": [EXPECT]},  # it runs elsewhere
        "else": of_monitors,
        "allOf": [*_one_schedule()],
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
    """Return the schema of the project's own settings."""
    sections = {
        section: table_of(_explained(keys, SETTINGS, f"{section}.")) for section, keys in section_keys().items()
    }
    defaults = {**_overrides(is_monitor=False, without=NOT_IN_DEFAULTS), "description": "Settings of every job."}
    one_job = _overrides(is_monitor=True)
    values = {"type": "object", "description": "What scripts see in their table `values`."}
    channels = {
        "type": "object",
        "propertyNames": {"pattern": NAME},
        "additionalProperties": table_of(_explained(channel_keys(), CHANNEL)),
        "description": "The ways to reach somebody, by name.",
    }
    maintenance = {
        **list_of(table_of(_explained(maintenance_keys(), MAINTENANCE))),
        "description": "When jobs may fail without anybody being told.",
    }
    jobs = {"type": "object", "additionalProperties": one_job, "description": "Settings of one job, by its id."}
    return {
        "$schema": DIALECT,
        "title": "spyweb: config.toml",
        **table_of(
            {
                **sections,
                "channels": channels,
                "maintenance": maintenance,
                "values": values,
                "defaults": {**defaults, "description": "Settings of every job."},
                "jobs": jobs,
            }
        ),
    }


def _overrides(*, is_monitor: bool, without: Container[str] = ()) -> Schema:
    """Return the keys that can be set from outside a job's own file: all but its name."""
    keys = _explained(job_keys(is_monitor=is_monitor), JOB)
    return {
        **table_of({key: value for key, value in keys.items() if key != "name" and key not in without}),
        "allOf": _one_schedule(),
    }


def _one_schedule() -> list[Schema]:
    pairs = ((one, other) for index, one in enumerate(SCHEDULES) for other in SCHEDULES[index + 1 :])
    return [{"not": {"required": list(pair)}} for pair in pairs]


def _explained(keys: Mapping[str, Schema], words: Mapping[str, str], prefix: str = "") -> dict[str, Schema]:
    """Add a description to each key, and drop the defaults that are not the same everywhere."""
    return {key: _explain(value, words, prefix + key) for key, value in keys.items()}


def _explain(value: Schema, words: Mapping[str, str], name: str) -> Schema:
    explained = _explain_inside(value, words, f"{name}.")
    if name in words:
        explained["description"] = words[name]
    if name in OF_THE_MACHINE:
        explained.pop("default", None)
    return explained


def _explain_inside(value: Schema, words: Mapping[str, str], prefix: str) -> dict[str, object]:
    """Explain the keys of a table, also of one that a value may be instead of something else."""
    explained, inner, others = dict(value), value.get("properties"), value.get("anyOf")
    if isinstance(inner, Mapping):
        explained["properties"] = _explained(inner, words, prefix)
    if isinstance(others, list):
        explained["anyOf"] = [_explain_inside(each, words, prefix) for each in others]
    return explained
