"""The values that a command line gives a script: a file of them, and single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from spyweb.errors import ConfigError, Problem, Refused
from spyweb.settings.script_values import merge, parse_variable, to_text, values_table
from spyweb.settings.tables import parse_table


def given_values(file: Path | None, variables: Sequence[str]) -> Mapping[str, object]:
    """Return the values, the last variable the strongest.  Raises Refused, or ConfigError where the file is wrong."""
    try:
        values = merge([*map(parse_variable, reversed(variables)), read_values(file) if file else {}])
        to_text(values)
    except ValueError as error:
        raise Refused(str(error)) from error
    return values


def read_values(path: Path) -> Mapping[str, object]:
    """Return the values of a TOML file.  Raises ConfigError for one that can't be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError([Problem(str(path), None, None, f"can't be read: {reason}")]) from error
    table = parse_table(text, str(path))
    if isinstance(table, Problem):
        raise ConfigError([table])
    return values_table(table.values)
