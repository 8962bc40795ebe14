from __future__ import annotations

from tests.fakes.lua_library import LuaLibrary


def make(asked: list[tuple[object, ...]]) -> LuaLibrary:
    def answer(name: str) -> object:
        def op(*given: object) -> list[object]:
            asked.append((name, *given))
            return [b"{{.x}}" if name == "_template" else {b"changed": True}]

        return op

    names = ("file.copy", "file.stat", "_template", "_template_file")
    return LuaLibrary(ops={name: answer(name) for name in names})  # type: ignore[misc]


def test_a_function_of_file_is_an_op() -> None:
    asked: list[tuple[object, ...]] = []
    vm = make(asked)
    assert vm.run("return file.copy{src = 'a', dest = 'b'}") == [{b"changed": True}]
    assert asked == [("file.copy", {b"src": b"a", b"dest": b"b"})]


def test_a_template_is_rendered_here_and_written_there() -> None:
    asked: list[tuple[object, ...]] = []
    vm = make(asked)
    script = "return file.template{src = 'a', dest = 'b', vars = {x = 5, f = print}, mode = 600, check = true}"
    assert vm.run(script) == [{b"changed": True}]
    assert asked == [
        ("_template", b"file.template", b"a"),
        ("_template_file", {b"src": b"a", b"dest": b"b", b"mode": 600, b"check": True}, b"5"),
    ]
    assert vm.run("return file.template{text = 'a{{.x}}', dest = 'b', vars = {x = 1}}") == [{b"changed": True}]
    assert asked[2:] == [("_template_file", {b"dest": b"b"}, b"a1")]


def test_one_that_can_not_be_rendered_writes_nothing() -> None:
    asked: list[tuple[object, ...]] = []
    vm = make(asked)
    assert vm.run("return file.template{text = 'a\\n{{.y}}', dest = 'b'}") == [None, b"template:2: nothing is named .y"]
    assert vm.error("file.template{dest = 'b'}") == (
        "script.lua:1: bad argument #1 to 'file.template' (either 'src' or 'text' expected)"
    )
    assert asked == []
