"""The reference is complete and as the code says: in the pages, and in the definitions for editors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from lupa.lua54 import LuaRuntime

from docs.reference.generate import PAGES, parts_of, renewed
from spyweb.daemon.world import engine_info
from spyweb.errors import FetchError
from spyweb.lua.endings import as_text
from spyweb.lua.hooks import HOOK_NAMES, HOOKS
from spyweb.model import JobId, Run, RunId, RunState, Trigger, TriggerType
from spyweb.monitor.context import STAGES, Stage, Telemetry
from spyweb.monitor.exchange import replied, request_to_lua, result_to_lua
from spyweb.monitor.items import Item, items_to_lua
from spyweb.ops import http
from spyweb.ops.network.request import FetchRequest, Response
from spyweb.reference import language
from spyweb.reference.definitions import definitions
from spyweb.runs.records import ctx_of
from spyweb.settings.load import load_settings
from spyweb.web.endpoints import describe_request
from tests.fakes.clock import FakeClock
from tests.fakes.lua_library import globals_of_a_vm
from tests.fakes.repository import ROOT, read

NAMES_OF_A_TABLE = """
local names = {}
for name, value in pairs(_G) do
  names[#names + 1] = name
  if type(value) == "table" and value ~= _G then
    for key in pairs(value) do names[#names + 1] = name .. "." .. tostring(key) end
  end
end
return table.concat(names, " ")
"""
OF_THE_ENGINE = {f"engine.{field.name}" for field in language.TABLES["Engine"].fields}


def defined() -> set[str]:
    """What is there once the definitions have been executed in plain Lua, which is what an editor knows besides."""
    lua = LuaRuntime(unpack_returned_tuples=False)
    lua.execute(definitions())
    return set(str(lua.execute(NAMES_OF_A_TABLE)).split())


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_as_it_would_be_generated_now(page: str) -> None:
    text = read(page)
    assert text == renewed(text), f"{page} is not up to date: `make docs` writes it anew"


def test_every_function_table_and_hook_is_on_a_page() -> None:
    shown = {part for page in PAGES for part in parts_of(read(page))}
    assert {name for kind, name in shown if kind == "functions"} == {
        family.name for family in (*language.op_families(), *language.FAMILIES)
    }
    assert set(language.TABLES) - {name for kind, name in shown if kind == "table"} <= {
        "StateUpdate", "StateOp", "StateChange", "Task", "Workflow",
    }, "those are spelt out by hand, as calls"  # fmt: skip
    assert ("hooks", "all") in shown


def test_every_global_of_a_vm_is_in_the_definitions() -> None:
    sentinels = {"state.null.", "JSON_EMPTY_ARRAY."}
    absent = {f"{name}.1" for name in language.ABSENT}  # the name that they raise with
    missing = globals_of_a_vm() - defined() - OF_THE_ENGINE - absent
    assert not {name for name in missing if not name.startswith(tuple(sentinels))}


def test_every_hook_is_defined_for_editors() -> None:
    assert set(HOOK_NAMES) <= defined()


def test_every_hook_that_is_a_stage_says_what_its_answer_does() -> None:
    stages = {name for name in STAGES if Stage(name).shown()["type"] == "hook"}
    for hook in HOOKS:
        assert hook.can_fail is bool(hook.nothing) is (hook.name in stages), hook.name


ASK = FetchRequest(url=b"https://a.b", body=b"x", timeout_s=1, proxy=b"http://p", max_body_size=1)
REACHED: dict[str, Any] = {"url": b"https://a.b", "time_ms": 1, "ip": b"192.0.2.1", "redirects": 0}
REPLY = Response(status=403, body=b"", proxy=b"http://p", **REACHED)
RUN = Run(id=RunId(1), job=JobId("a"), state=RunState.RUNNING, attempt=1, trigger=Trigger(type="manual"), started_ms=1)
RESPONSE = Response(status=200, body=b"", headers={}, **REACHED)
PACKED = Telemetry("a", FakeClock()).packed()
OF_US = {"route", "is_public"}  # in a request: taken out before a handler sees it
BY_LUA = {"shared", "final", "error", "worker_id", "last_fetch", "selector_matches", "telemetry"}  # in ctx

SEEN_BY_SCRIPTS: dict[str, Callable[[], Iterable[str]]] = {
    "HttpResponse": lambda: http.response_to_lua(RESPONSE),
    "HttpError": lambda: http._failed(FetchError("tls", "no", proxy="http://p"))[1] or {},
    "Request": lambda: request_to_lua(ASK),
    "Response": lambda: http.response_to_lua(REPLY),
    "FetchResult": lambda: result_to_lua(replied(ASK, REPLY)),
    "Item": lambda: map(as_text, cast("list[Iterable[bytes]]", items_to_lua([Item({}, old={"a": "b"})]))[0]),
    "Telemetry": lambda: ["map", *msgspec.msgpack.decode(PACKED, type=list[dict[str, object]])[0]],
    "Stage": lambda: Stage(name="fetch", error="no").shown(),
    "Ctx": lambda: [*ctx_of(RUN), *BY_LUA],
    "Engine": lambda: engine_info(load_settings(ROOT, environ={}, flags={}), "http://a.b").engine,
    "ServerRequest": lambda: (
        describe_request(make_mocked_request("POST", "/api/v/x"), b"x", is_public=False).keys() - OF_US
    ),
}


@pytest.mark.parametrize("name", SEEN_BY_SCRIPTS)
def test_a_table_has_the_fields_that_scripts_see(name: str) -> None:
    found = language.TABLES[name]
    assert {field.name for field in found.fields} == set(SEEN_BY_SCRIPTS[name]())


def test_why_a_run_began_has_every_type() -> None:
    (kind,) = (field.type for field in language.TABLES["Trigger"].fields if field.name == "type")
    assert {f'"{each.value}"' for each in TriggerType} == set(kind.split("|"))
