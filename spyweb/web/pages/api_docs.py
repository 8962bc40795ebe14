"""The page that describes the API: the OpenAPI document, rendered with a curl command and examples for each address."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from spyweb.web.access.headers import is_secure
from spyweb.web.access.recognise import KEY_HEADER
from spyweb.web.api.document import MOST, OF_EACH, Schema, document_of, kind_of, title_of
from spyweb.web.api.route import JSON, LINES
from spyweb.web.pages.page import Asked, DashboardPage, Shown
from spyweb.web.pages.words import pieces_of

DEEPEST = 4  # levels of an example: types may hold themselves
SIMPLE: Mapping[str, object] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_PARAMETER = re.compile(r"\{(\w+)\}")
_BOUNDS = {"minimum": "at least", "maximum": "at most", "default": "default"}


class ApiContent(Struct, frozen=True, kw_only=True):
    """The body of a request or of an answer."""

    media: str
    kind: str  # such as `array of Run`
    example: str = ""  # JSON


@DashboardPage("api/docs", "api_docs.html", of_job=True)
async def show_api_docs(asked: Asked) -> Shown:
    """Describe every address of the API, with its parameters, bodies, answers and errors."""
    document = await document_of(asked.request.app)
    scheme = "https" if is_secure(asked.request) else "http"
    values = await asyncio.to_thread(values_of, document, f"{scheme}://{asked.request.host}")
    return Shown(title="API", values=values)


def values_of(document: bytes, url: str) -> dict[str, object]:
    made: Schema = msgspec.json.decode(document)
    schemas: Schema = made["components"]["schemas"]
    subjects: dict[str, list[Schema]] = {}
    for path, item in made["paths"].items():
        for method, operation in item.items():
            given = operation.get("requestBody")
            body = _content(given["content"], schemas) if given else None
            answer = next(each for status, each in operation["responses"].items() if status.startswith("2"))
            subjects.setdefault(title_of(*operation["tags"]), []).append(
                operation
                | {"method": method.upper(), "path": path, "curl": _curl(method.upper(), path, operation, body)}
                | {"body": body, "answer": _content(answer["content"], schemas)}
            )
    return {
        "url": url,
        "subjects": subjects,
        "schemas": schemas,
        "kind_of": kind_of,
        "about": _about,
        "words_of": re.compile(r"(\w+)").split,
        "pieces_of": pieces_of,
    }


def _about(parameter: Schema) -> str:
    schema: Schema = parameter["schema"]
    bounds = [f"{words} {schema[key]}" for key, words in _BOUNDS.items() if schema.get(key, MOST) != MOST]
    needed = ["required"] if parameter["required"] and parameter["in"] != "path" else []
    return "; ".join(filter(None, [parameter.get("description", ""), ", ".join([*needed, *bounds])]))


def _content(content: Schema, schemas: Schema) -> ApiContent:
    ((media, given),) = content.items()
    each = OF_EACH.get(media)
    schema: Schema = given[each] if each else given["schema"]
    kind = f"{'lines' if media == LINES else 'events'} of {kind_of(schema)}" if each else kind_of(schema)
    has_example = each or media == JSON
    example = json.dumps(example_of(schema, schemas), indent=None if each else 2) if has_example else ""
    return ApiContent(media=media, kind=kind, example=example)


def example_of(schema: Schema, schemas: Schema, depth: int = 0) -> Any:
    """Return a value that the schema accepts: its default, the first of several choices, one item of a list."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth)
    if schema.get("default") or "enum" in schema:
        return schema.get("default") or schema["enum"][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], schemas, depth)
    match schema.get("type"):
        case "object":
            return dict(_members(schema, schemas, depth + 1)) if depth < DEEPEST else {}
        case "array":
            return [example_of(schema.get("items", {}), schemas, depth + 1)] if depth < DEEPEST else []
        case kind:
            return SIMPLE.get(kind, {}) if isinstance(kind, str) else {}


def _members(schema: Schema, schemas: Schema, depth: int) -> Iterator[tuple[str, object]]:
    for name, member in schema.get("properties", {}).items():
        yield name, example_of(member, schemas, depth)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield "name", example_of(schema["additionalProperties"], schemas, depth)


def _curl(method: str, path: str, operation: Schema, body: ApiContent | None) -> str:
    """Return the command of this request: `$URL` is the daemon's address, `$KEY` a key; replace names in capitals."""
    query = "&".join(
        f"{each['name']}={each['name'].upper()}"
        for each in operation["parameters"]
        if each["in"] == "query" and each["required"]
    )
    address = _PARAMETER.sub(lambda found: found[1].upper(), path)
    words = ["curl", *(["-X", method] if method != "GET" else [])]
    words += [f'-H "{KEY_HEADER}: $KEY"'] if "x-right" in operation else []
    if body and body.media == JSON:
        example = json.dumps(json.loads(body.example))
        words += ['-H "Content-Type: application/json"', "-d", shlex.quote(example)]
    elif body:
        words += ["--data-binary", "@FILE"]
    return " ".join([*words, f'"$URL{address}{"?" if query else ""}{query}"'])
