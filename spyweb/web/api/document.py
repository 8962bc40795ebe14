"""Serve the API's OpenAPI 3.1 document, which is made of the types of its routes at the first request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec
from aiohttp import web

from spyweb import __version__
from spyweb.views.jobs import to_json
from spyweb.web.access.recognise import KEY_HEADER
from spyweb.web.answer import ErrorAnswer, WholeAnswer
from spyweb.web.api.route import EVENTS, JSON, LINES, Right, Route

Schema = dict[str, Any]

DOCUMENTED: web.AppKey[Sequence[Route]] = web.AppKey("routes in the document")
MADE: web.AppKey[list[bytes]] = web.AppKey("the document, once it is made")

REFERENCE = "#/components/schemas/{name}"
MOST = (1 << 63) - 1
KEY, TOKEN = "key", "token"
OF_EACH = {LINES: "x-line", EVENTS: "x-event"}  # where the type of a line, or an event, stands
PATH_PARAMETERS: Mapping[str, tuple[str, Schema]] = {
    "job": ("the id of a job, or its name", {"type": "string", "minLength": 1}),
    "run": ("the number of a run", {"type": "integer", "minimum": 0, "maximum": MOST}),
    "incident": ("the number of an incident", {"type": "integer", "minimum": 0, "maximum": MOST}),
    "channel": ("the name of a notification channel", {"type": "string"}),
    "window": ("the number of a maintenance window", {"type": "integer", "minimum": 0, "maximum": MOST}),
    "change": ("`drain`, `resume` or `forget`", {"type": "string", "enum": ["drain", "resume", "forget"]}),
    "says": ("`start`, `success`, `fail`, or an exit code from 0 to 255", {"type": "string", "minLength": 1}),
    "name": ("a name", {"type": "string", "minLength": 1}),
}
DESCRIPTION = """\
The API of the daemon.  Errors are `ErrorAnswer`, with a status and a code.  Once there is a key, each request sends one
in the header `X-SpyWeb-Key`; without any key only requests of this machine are answered."""

# Errors that a route may answer with, each with its reason.
ALWAYS = {400: "The request is malformed, or a parameter is invalid."}
WITH_RIGHT = {
    401: "A key is needed.",
    403: "The key lacks the right, or the request comes from a page of another site.",
    429: "Too many wrong keys came from this address.",
}
WITH_PATH = {404: "It does not exist."}
WITH_BODY = {408: "The body arrives too slowly.", 413: "The body is too large.", 422: "The body is invalid."}
REFUSED = {409: "It is not possible now: the message gives the reason."}
BUSY = {503: "The store or the server is busy."}
NEXT_PAGE = {"description": '`<?…>; rel="next"`: the next page, if there is one', "schema": {"type": "string"}}
NUMBER = re.compile(r"\{(\w+)(?::[^}]*)?\}")


class Types:
    """Collects the types of a document, and gives the schema of each."""

    def __init__(self, types: Sequence[object]) -> None:
        found = [each for each in types if each is not object]
        schemas, self.components = msgspec.json.schema_components(found, schema_hook=_any_json, ref_template=REFERENCE)
        self._schemas = {repr(each): schema for each, schema in zip(found, schemas, strict=True)}

    def schema(self, kind: object) -> Schema:
        if isinstance(kind, tuple):
            schemas = [self.schema(each) for each in kind]
            return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        return {} if kind is object else self._schemas[repr(kind)]

    def fields(self, kind: type[msgspec.Struct]) -> Schema:
        """Return the schema of the Struct itself."""
        fields: Schema = self.components[self.schema(kind)["$ref"].rpartition("/")[2]]
        return fields


def make_document(routes: Sequence[Route], version: str) -> Schema:
    types = Types([*dict.fromkeys(each for route in routes for each in _types_of(route)), ErrorAnswer])
    paths: dict[str, Schema] = {}
    for each in routes:
        paths.setdefault(NUMBER.sub(r"{\1}", each.path), {})[each.method.lower()] = _operation(each, types)
    for each in routes:
        if each.query:
            types.components.pop(types.schema(each.query)["$ref"].rpartition("/")[2], None)
    return {
        "openapi": "3.1.0",
        "info": {"title": "spyweb", "version": version, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": types.components,
            "securitySchemes": {
                KEY: {"type": "apiKey", "in": "header", "name": KEY_HEADER},
                TOKEN: {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _types_of(route: Route) -> Iterator[object]:
    for kind in (route.answer, route.body, *route.others.values(), route.query):
        yield from (each for each in (kind if isinstance(kind, tuple) else (kind,)) if each is not None)


def _any_json(kind: type) -> Schema:
    if kind is not object:
        raise NotImplementedError
    return {"description": "any JSON"}


def _operation(route: Route, types: Types) -> Schema:
    summary, _, rest = route.doc.partition("\n")
    operation: Schema = {
        "operationId": route.name,
        "tags": [route.subject],
        "summary": summary,
        "parameters": [*_parameters(route, types)],
        "responses": {str(status): answer for status, answer in sorted(_responses(route, types).items())},
    }
    if rest.strip():
        operation["description"] = "\n".join(line.strip() for line in rest.strip().splitlines())
    if route.right is None:
        operation["security"] = []
    else:
        operation["security"] = [{KEY: []}, {TOKEN: []}, {}]
        operation["x-right"] = route.right.value
    if route.body is not None:
        is_optional = type(None) in get_args(route.body)
        content = _content(route.body, route.body_media, types)
        operation["requestBody"] = {"required": not is_optional, "content": content}
    return operation


def _content(kind: object, media: str, types: Types) -> Schema:
    if media == JSON:
        return {media: {"schema": types.schema(kind)}}
    of_each = {OF_EACH[media]: types.schema(kind)} if media in OF_EACH else {}
    return {media: {"schema": {"type": "string"}, **of_each}}


def _parameters(route: Route, types: Types) -> Iterator[Schema]:
    for name in NUMBER.findall(route.path):
        description, schema = PATH_PARAMETERS[name]
        yield {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
    fields: Schema = types.fields(route.query) if route.query else {"properties": {}}
    for name, schema in fields["properties"].items():
        shown = _without_null(schema)
        described = {"description": shown.pop("description")} if "description" in shown else {}
        yield {"name": name, "in": "query", "required": name in fields["required"], **described, "schema": shown}
    for name, text in route.headers.items():
        yield {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}


def _without_null(schema: Schema) -> Schema:
    """Return the schema of a parameter: it is text or absent, and names are percent-encoded bytes."""
    shown = dict(schema)
    if "anyOf" in shown:
        (kind,) = (each for each in shown.pop("anyOf") if each != {"type": "null"})
        shown = {**kind, **shown}
    shown.pop("contentEncoding", None)
    if shown.get("default", "") in (None, ""):
        shown.pop("default", None)
    return shown


def _responses(route: Route, types: Types) -> dict[int, Schema]:
    failures = {**ALWAYS, **BUSY, **route.statuses}
    if route.right is not None:
        failures |= {**WITH_RIGHT, **REFUSED}
    if "{" in route.path or route.query is not None:
        failures |= WITH_PATH
    if route.body is not None:
        failures |= WITH_BODY
    error = {"content": {JSON: {"schema": types.schema(ErrorAnswer)}}}
    responses: dict[int, Schema] = {status: {"description": text, **error} for status, text in failures.items()}
    for status, kind in route.others.items():
        content = _content(kind, route.media, types)
        responses[status] = {"description": "The same, of another state.", "content": content}
    responses[route.status] = {"description": "Done.", "content": _content(route.answer, route.media, types)}
    if route.is_paged:
        responses[route.status]["headers"] = {"Link": NEXT_PAGE}
    return responses


def title_of(tag: str) -> str:
    """Return the title of a subject, as its page has it."""
    return "Schedule" if tag == "when" else tag.replace("_", " ").capitalize()


def kind_of(schema: Schema) -> str:
    """Return a schema in words: `array of Run`."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(kind_of(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"array of {kind_of(schema.get('items', {}))}"
        case "object":
            values = schema.get("additionalProperties", {})
            return f"object of {kind_of(values)}" if values else "object"
        case None:
            return "any JSON"
        case kind:
            return str(kind)


async def document_of(app: web.Application) -> bytes:
    """Return the document as JSON; it is made once, in a thread."""
    made = app[MADE]
    if not made:
        made.append(await asyncio.to_thread(lambda: to_json(make_document(app[DOCUMENTED], __version__))))
    return made[-1]


@Route("GET", "/api/openapi.json", right=Right.READ, answer=Schema, of_job=True)
async def show_document(request: web.Request) -> web.Response:
    """Describe the API in OpenAPI 3.1."""
    return WholeAnswer(body=await document_of(request.app), content_type=JSON)
