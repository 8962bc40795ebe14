"""The page of the API describes each route as the server has it, with examples that the server accepts."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from html import unescape
from typing import Any

import msgspec
import pytest

from spyweb.daemon.subjects import ROUTES
from spyweb.store.model.access import Scope
from spyweb.views.jobs import to_json
from spyweb.web.api.document import make_document
from spyweb.web.api.route import JSON, Route
from spyweb.web.app import tcp_app
from spyweb.web.pages.api_docs import example_of, values_of
from spyweb.web.pages.frame import API_DOCS
from tests.fakes.client import client_of
from tests.fakes.dashboard import make_dashboard_service, signed_in

BROWSER = {"Accept": "text/html"}
DOCUMENT = to_json(make_document(ROUTES, "1.0"))


def operations() -> dict[str, dict[str, Any]]:
    subjects = values_of(DOCUMENT, "http://localhost:7979")["subjects"]
    assert isinstance(subjects, dict)
    return {each["operationId"]: each for found in subjects.values() for each in found}


async def test_the_page_has_every_route_and_every_type_and_leads_only_to_what_it_has() -> None:
    async with client_of(tcp_app(make_dashboard_service())) as client:
        async with client.get("/", headers=BROWSER) as answer:
            assert f'<a href="{API_DOCS}">API</a>' in await answer.text()
        async with client.get(API_DOCS, headers=BROWSER) as answer:
            text = unescape(await answer.text())
    for each in ROUTES:
        path = re.sub(r"\{(\w+)(?::[^}]*)?\}", r"{\1}", each.path)
        assert f'<h3 id="{each.name}"><a href="#{each.name}"><code>{each.method} {path}</code></a></h3>' in text
    ids = Counter(re.findall(r'\bid="([^"]*)"', text))
    assert [each for each, times in ids.items() if times > 1] == []
    assert set(re.findall(r'href="#([^"]*)"', text)) <= ids.keys()


async def test_a_stranger_is_asked_to_sign_in_and_a_key_of_some_jobs_may_read_it() -> None:
    service = make_dashboard_service()
    some = await signed_in(service, Scope.READ, name="some", jobs=("prices",))
    async with client_of(tcp_app(service)) as client:
        async with client.get(API_DOCS, headers=BROWSER) as answer:
            assert (answer.status, "Sign in" in await answer.text()) == (401, True)
        async with client.get(API_DOCS, headers=some) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "route", [each for each in ROUTES if each.body_media == JSON and each.body], ids=lambda each: each.name
)
def test_the_example_of_a_body_is_one_that_the_route_accepts(route: Route) -> None:
    body = operations()[route.name]["body"]
    assert body
    msgspec.json.decode(body.example, type=route.body)


def test_commands_are_whole_and_quoted_for_a_shell() -> None:
    for each in operations().values():
        words = shlex.split(each["curl"])
        assert words[0] == "curl"
        assert words[-1].startswith("$URL/")
        assert ("X-SpyWeb-Key: $KEY" in words) is ("x-right" in each)
        assert ("-X" in words) is (each["method"] != "GET")
        if each["body"] and each["body"].media == JSON:
            json.loads(words[words.index("-d") + 1])
    assert operations()["put_entry"]["curl"].endswith('"$URL/api/state/entry?key=KEY"')


def test_an_example_of_a_type_that_holds_itself_ends() -> None:
    tree = {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/x/Tree"}}}}
    assert example_of(tree, {"Tree": tree}) == {"below": [{"below": [{}]}]}
