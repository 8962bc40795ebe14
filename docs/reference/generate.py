"""Write the generated parts of the reference, and config.example.toml, anew: `make docs`.

A page says where they stand: `<!-- generated: functions HTTP -->` up to `<!-- end -->`.  What is between is written
anew; the rest of the page is for people to write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spyweb import __version__
from spyweb.checks.settings import ANY_CHECK
from spyweb.daemon.subjects import ROUTES
from spyweb.lua.hooks import HOOKS
from spyweb.reference import language
from spyweb.reference.language import Family
from spyweb.reference.schema import CHECKS, JOB, config_schema, explain
from spyweb.settings.reading import Schema
from spyweb.specs.parse import PERMISSIONS, job_keys
from spyweb.web.api.document import kind_of, make_document, title_of
from spyweb.web.api.route import LINES, Route

SETTINGS = ("schedule", "job", "triggers", "checks", "monitors", "alerts", "server", "storage", "permissions", "daemon")
SETTINGS_PAGES = tuple(f"docs/reference/settings/{subject}.md" for subject in SETTINGS)
PAGES = ("docs/reference/lua.md", "docs/reference/hooks.md", "docs/reference/api.md", *SETTINGS_PAGES)
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


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in lines)


EXAMPLE = "config.example.toml"
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
    "confirm": 2,
    "method": "POST",
    "body": "{}",
    "max_body_size": "1MB",
    "host": "example.org",
    "port": 443,
    "send": "QUIT\r\n",
    "tls": True,
    "type": "MX",
    "server": "192.0.2.53",
    "count": 3,
    "command": ["/usr/bin/systemctl", "is-active", "nginx"],
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
    "status_page": "# [status_page]",
    "values": '[values]\n# host = "web1"',
    "jobs": "# Those of [defaults], [permissions] and [alerts] too; stronger than its own file.\n# [jobs.my_job]",
}
OF_PINGS = ("expect", "grace")


def keys_of(section: str) -> Mapping[str, Schema]:
    """Return the explained keys of a section of config.toml, or of a `job`, `check` or `monitor`.  Raises KeyError."""
    if section == "check":
        others = job_keys().keys() - {"expect"}
        return {key: of for key, of in explain(job_keys(check=ANY_CHECK), CHECKS).items() if key not in others}
    if section in ("job", "monitor"):
        return explain(job_keys(is_monitor=section == "monitor"), JOB)
    properties = config_schema()["properties"]
    assert isinstance(properties, Mapping)
    inner = properties[section]
    table: Schema = inner.get("items") or inner.get("additionalProperties") or inner
    keys = table["properties"]
    assert isinstance(keys, Mapping)
    return keys


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


def routes_part(_: str) -> str:
    return "\n".join(_subjects(ROUTES, make_document(ROUTES, "")))


def types_part(_: str) -> str:
    return "\n".join(_types(make_document(ROUTES, "")["components"]["schemas"]))


def _subjects(routes: Sequence[Route], document: Mapping[str, Any]) -> Iterator[str]:
    for subject in dict.fromkeys(each.subject for each in routes):
        yield f"### {title_of(subject)}\n"
        yield "| | right | answer | |\n|---|---|---|---|"
        for each in routes:
            if each.subject == subject:
                operation = document["paths"][each.path][each.method.lower()]
                path = re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), each.path)
                query = "&".join(f"{given['name']}=" for given in operation["parameters"] if given["in"] == "query")
                ((media, content),) = operation["responses"][str(each.status)]["content"].items()
                gives = f"lines of {kind_of(content['x-line'])}" if media == LINES else kind_of(content["schema"])
                request = f"`{each.method} {path}{'?' if query else ''}{query}`"
                yield f"| {' | '.join((request, each.right or 'none', gives, _words(operation)))} |"
        yield ""


def _words(operation: Mapping[str, Any]) -> str:
    words = " ".join([operation["summary"], *operation.get("description", "").split()])
    if body := operation.get("requestBody"):
        ((_, content),) = body["content"].items()
        words += f" Body: {kind_of(content.get('x-line', content['schema']))}{'' if body['required'] else ', or none'}."
    return words.replace("|", "\\|")


def _types(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        about = schema.get("description", "")
        if "enum" in schema:
            values = ", ".join(f"`{each}`" for each in schema["enum"])
            yield f"- **{name}**: {' '.join(about.split()) if ': ' in about else values}"
            continue
        about = about.partition("\n")[0]
        required = schema.get("required", ())
        fields = (
            f"`{field}`{'' if field in required else '?'} {kind_of(kind)}"
            for field, kind in schema.get("properties", {}).items()
        )
        yield f"- **{name}**: {about + ' ' if about else ''}{', '.join(fields)}"


MAKERS: Mapping[str, Callable[[str], str]] = {
    "functions": functions_part,
    "table": table_part,
    "hooks": hooks_part,
    "order": order_part,
    "settings": settings_part,
    "routes": routes_part,
    "types": types_part,
}


if __name__ == "__main__":
    for page in map(Path, PAGES):
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
    Path(EXAMPLE).write_text(example(), encoding="utf-8")
