"""Generate parts of the reference pages.

A page says where they stand: `<!-- generated: functions HTTP -->` up to `<!-- end -->`.  What is between is written
anew; the rest of the page is for people to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from spyweb.lua.hooks import HOOKS
from spyweb.reference import language
from spyweb.reference.language import Family

PAGES = ("docs/reference/lua.md", "docs/reference/hooks.md")
_PART = re.compile(r"<!-- generated: (?P<kind>\w+) (?P<names>[^\n]+?) -->\n.*?<!-- end -->", re.DOTALL)
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
    grid = _grid(("function", "gives", ""), rows)
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


MAKERS: Mapping[str, Callable[[str], str]] = {
    "functions": functions_part,
    "table": table_part,
    "hooks": hooks_part,
    "order": order_part,
}


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in lines)
