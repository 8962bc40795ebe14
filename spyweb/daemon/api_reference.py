"""Generate the parts of docs/reference/api.md: the table of routes and the types of their answers.

`python -m spyweb.daemon.api_reference`, in the repository, generates them again, from the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spyweb.daemon.subjects import ROUTES
from spyweb.web.api.document import kind_of, make_document, title_of
from spyweb.web.api.route import LINES, Route

PAGE = "docs/reference/api.md"
_PART = re.compile(r"<!-- generated: (?P<kind>routes|types) -->\n.*?<!-- end -->", re.DOTALL)

Schema = dict[str, Any]


def renewed(page: str) -> str:
    """Return the page with its generated parts renewed."""
    document = make_document(ROUTES, "")
    parts = {
        "routes": "\n".join(_subjects(ROUTES, document)),
        "types": "\n".join(_types(document["components"]["schemas"])),
    }
    return _PART.sub(lambda found: f"<!-- generated: {found['kind']} -->\n\n{parts[found['kind']]}\n<!-- end -->", page)


def _subjects(routes: Sequence[Route], document: Schema) -> Iterator[str]:
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


def _words(operation: Schema) -> str:
    words = " ".join([operation["summary"], *operation.get("description", "").split()])
    if body := operation.get("requestBody"):
        ((_, content),) = body["content"].items()
        words += f" Body: {kind_of(content.get('x-line', content['schema']))}{'' if body['required'] else ', or none'}."
    return words.replace("|", "\\|")


def _types(schemas: Schema) -> Iterator[str]:
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


if __name__ == "__main__":
    page = Path(PAGE)
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
