from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary


def respond(*_: object) -> list[object]:
    return [{"status": 200, "headers": {"content-type": "text/html", "x-a": "1, 2"}}, None]


def fail(*_: object) -> list[object]:
    return [None, {"error": "no route", "kind": "connect"}]


@pytest.mark.parametrize("name", ["http_get", "http_post", "http_request", "http_multipart"])
def test_reading_response_headers_ignores_case(name: str) -> None:
    vm = LuaLibrary(ops={name: respond})
    script = f"""
      local response, err = {name}('x')
      local h, names = response.headers, {{}}
      for key in pairs(h) do names[#names + 1] = key end
      table.sort(names)
      return h['Content-Type'], h['content-type'], h['X-A'], h.missing, h[1], err, names, json_encode(h)
    """
    assert vm.run(script) == [
        b"text/html", b"text/html", b"1, 2", None, None, None, [b"content-type", b"x-a"],
        b'{"content-type":"text/html","x-a":"1, 2"}',
    ]  # fmt: skip


def test_a_failure_passes_through() -> None:
    vm = LuaLibrary(ops={"http_get": fail})
    assert vm.run("local r, e = http_get('x') return r, e.kind, select('#', http_get('x'))") == [None, b"connect", 2]


def test_without_the_op_there_is_no_function() -> None:
    assert LuaLibrary().value("http_get") is None
