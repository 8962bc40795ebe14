"""Generate parts of the reference pages.

A page says where they stand: `<!-- generated: functions HTTP -->` up to `<!-- end -->`.  What is between is written
anew; the rest of the page is for people to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from spyweb import __version__
from spyweb.lua.hooks import HOOKS
from spyweb.reference import language
from spyweb.reference.language import Family
from spyweb.reference.schema import as_toml, keys_of

SUBJECTS = ("schedule", "job", "triggers", "monitors", "alerts", "server", "storage", "permissions", "daemon")
SETTINGS_PAGES = tuple(f"docs/reference/settings/{subject}.md" for subject in SUBJECTS)
PAGES = ("docs/reference/lua.md", "docs/reference/hooks.md", *SETTINGS_PAGES)
_PART = re.compile(r"<!-- generated: (?P<kind>\w+) (?P<names>[^\n]+?) -->\n.*?<!-- end -->", re.DOTALL)
_CODE = re.compile(
    r'`[^`]*+`|\{ [^{}]*+\}|\$?\{\w++\}|"[^"]*+"|\b\w++\.\*|(?<!\w)\[\w++\]'
)  # in a line about a setting
ELSEWHERE = ("permissions", "alerts")  # their keys are a section of config.toml
ALL = "all"
ALL_WAIT = "All of these *wait*. "
DESCRIBED = ("request", "fetch_result", "response", "item", "payload")  # arguments that are one table with known fields


def renewed(page: str) -> str:
    """Return a page with its generated parts renewed.  Raises ValueError for a part of an unknown kind."""
    return _PART.sub(_part, page)


def parts_of(page: str) -> list[tuple[str, str]]:
    """Return the kind and the name of each generated part."""
    return [(found["kind"], name) for found in _PART.finditer(page) for name in _names(found["names"])]


def _part(found: re.Match[str]) -> str:
    kind, names = found["kind"], found["names"]
    make = MAKERS.get(kind)
    if make is None:
        raise ValueError(f"there are no generated {kind}: there are {', '.join(MAKERS)}")
    text = "\n".join(make(name) for name in _names(names))
    return f"<!-- generated: {kind} {names} -->\n\n{text}\n<!-- end -->"


def _names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def families() -> Mapping[str, Sequence[Family]]:
    """Return the families by name; ops and other functions may share one."""
    found: dict[str, list[Family]] = {}
    for family in (*language.op_families(), *language.FAMILIES):
        found.setdefault(family.name, []).append(family)
    return found


def functions_part(name: str) -> str:
    chosen = families().get(name)
    if not chosen:
        raise ValueError(f"there is no family {name}: there are {', '.join(families())}")
    functions = [each for family in chosen for each in family.functions]
    all_wait = all(each.waits for each in functions)
    rows = [
        (
            f"`{each.usage}`",
            ", ".join(f"`{result.type}`" for result in each.results) or "nothing",
            f"{each.text}{' *Waits.*' if each.waits and not all_wait else ''}",
        )
        for each in functions
    ]
    grid = _grid(("function", "returns", ""), rows)
    errors = " ".join(dict.fromkeys(family.errors for family in chosen))
    return f"{grid}\n{ALL_WAIT if all_wait else ''}{errors}\n"


def table_part(name: str) -> str:
    found = language.TABLES.get(name)
    if found is None:
        raise ValueError(f"there is no table {name}: there are {', '.join(language.TABLES)}")
    rows = [(f"`{field.shown}`", f"`{field.type}`", field.text) for field in found.fields]
    text = found.text[:1].lower() + found.text[1:]
    return f"`{found.name}`: {text}\n\n{_grid(('field', 'type', ''), rows)}"


def hooks_part(name: str) -> str:
    chosen = [hook for hook in HOOKS if name in (ALL, hook.name)]
    if not chosen:
        raise ValueError(f"there is no hook {name}")
    parts = []
    for hook in chosen:
        call = language.CALLS[hook.name]
        types = [
            f"`{each.name}` is {'an' if each.type[0] in 'AEIOU' else 'a'} `{each.type}`."
            for each in call.arguments
            if each.name in DESCRIBED
        ]
        fails = '; under `on_hook_error = "fail"` the cycle fails' if hook.can_fail else ""
        said = (("returns", hook.returns), ("nil, false", hook.nothing), ("an error", f"{hook.error}{fails}"))
        rows = [row for row in said if row[1]]
        parts.append(f"### `{call.usage}`\n\n{' '.join([hook.called, *types])}\n\n{_grid(('', ''), rows)}")
    return "\n".join(parts)


def order_part(_: str) -> str:
    """Make the table of one cycle's hooks in order, each with what nil and false do."""
    rows = [(f"`{language.CALLS[hook.name].usage}`", hook.called, hook.nothing) for hook in HOOKS]
    return _grid(("hook", "called", "nil or false"), rows)


def settings_part(name: str) -> str:
    """Make the table of a section's keys, or of the keys that are named after it."""
    section, *wanted = name.split()
    keys = keys_of(section)
    return _grid(("key", "default", ""), [row for key in wanted or keys for row in _setting_rows(key, keys[key])])


def _setting_rows(name: str, shape: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    default = f"`{as_toml(shape['default']).replace(__version__, 'VERSION')}`" if "default" in shape else ""
    yield f"`{name}`", default, _CODE.sub(lambda found: f"`{found[0].strip('`')}`", shape.get("description", ""))
    tables = [] if name in ELSEWHERE else [shape, *shape.get("anyOf", ())]
    for key, inner in ((key, inner) for table in tables for key, inner in table.get("properties", {}).items()):
        yield from _setting_rows(f"{name}.{key}", inner)


MAKERS: Mapping[str, Callable[[str], str]] = {
    "functions": functions_part,
    "table": table_part,
    "hooks": hooks_part,
    "order": order_part,
    "settings": settings_part,
}


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in lines)
