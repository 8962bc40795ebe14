from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary


@pytest.mark.parametrize("name", ["http_get", "http_post", "http_request", "http_multipart"])
def test_reading_response_headers_ignores_case(name: str) -> None:
    response = {"status": 200, "headers": {"content-type": "text/html", "x-a": "1, 2"}}
    vm = LuaLibrary(ops={name: lambda *_: [response, None]})
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


def test_a_failure_passes_through_and_without_the_op_there_is_no_function() -> None:
    vm = LuaLibrary(ops={"http_get": lambda *_: [None, {"error": "no route", "kind": "connect"}]})
    assert vm.run("local r, e = http_get('x') return r, e.kind, select('#', http_get('x'))") == [None, b"connect", 2]
    assert LuaLibrary().value("http_get") is None
