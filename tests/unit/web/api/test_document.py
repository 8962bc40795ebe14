"""The OpenAPI document, against the table of routes and the specification, and as it is served."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct
from openapi_spec_validator import OpenAPIV31SpecValidator

from spyweb.daemon.subjects import ROUTES
from spyweb.subjects.jobs.api import show_overview
from spyweb.subjects.outbox.api import RetryQuery
from spyweb.web.api.document import make_document
from spyweb.web.api.route import LINES, Right, Route


class Answer(Struct):
    """An answer."""

    number: int


def document(*routes: Route) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(make_document(routes or ROUTES, "1.0")))
    return made


def test_the_document_is_valid() -> None:
    assert [str(error) for error in OpenAPIV31SpecValidator(document()).iter_errors()] == []


def test_it_has_every_route_and_no_other() -> None:
    described = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    assert described == {(each.method, each.path) for each in ROUTES}


def test_every_route_has_a_summary_an_answer_and_the_status_of_its_right() -> None:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            assert operation["summary"].endswith("."), (method, path)
            done = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
            assert [bool(answer["content"]) for answer in done] == [True], (method, path)
            assert ("401" in operation["responses"]) == bool(operation["security"]), (method, path)


def test_parameters_come_from_the_path_and_from_the_struct_of_the_query() -> None:
    route = Route(
        method="GET",
        path="/api/jobs/{job}/it",
        handler=show_overview,
        right=Right.READ,
        answer=Answer,
        query=RetryQuery,
    )
    made = document(route)
    parameters = made["paths"]["/api/jobs/{job}/it"]["get"]["parameters"]
    assert [(each["name"], each["in"], each["required"], each["schema"]["type"]) for each in parameters] == [
        ("job", "path", True, "string"),
        ("id", "query", False, "integer"),
    ]
    assert set(made["components"]["schemas"]) == {"Answer", "ErrorAnswer"}


def test_a_stream_of_lines_says_what_a_line_is() -> None:
    route = Route(
        method="GET",
        path="/lines",
        handler=show_overview,
        right=None,
        answer=(Answer, int),
        media=LINES,
        others={503: Answer},
    )
    responses = document(route)["paths"]["/lines"]["get"]["responses"]
    line = {"anyOf": [{"$ref": "#/components/schemas/Answer"}, {"type": "integer"}]}
    assert responses["200"]["content"] == {LINES: {"schema": {"type": "string"}, "x-line": line}}
    assert responses["503"]["content"][LINES]["x-line"] == {"$ref": "#/components/schemas/Answer"}


def test_a_header_that_a_request_may_have_is_a_parameter() -> None:
    operation = document()["paths"]["/api/hooks/{job}"]["post"]
    (header,) = [each for each in operation["parameters"] if each["in"] == "header"]
    assert (header["name"], header["required"]) == ("Idempotency-Key", False)
    assert "202" in operation["responses"]
    assert "200" not in operation["responses"]
