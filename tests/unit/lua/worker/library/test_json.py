from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("json_encode({})", b"{}"),
        ("json_encode({}, true)", b"[]"),
        ("json_encode({a = {}, b = {{}}}, true)", b'{"a":[],"b":[[]]}'),
        ("json_encode({}, false)", b"{}"),
        ("json_encode(JSON_EMPTY_ARRAY)", b"[]"),
        ("json_encode({a = JSON_EMPTY_ARRAY, b = {}})", b'{"a":[],"b":{}}'),
        ("json_encode(nil)", b"null"),
        ("json_encode()", b"null"),
        ("json_encode(true)", b"true"),
        ("json_encode(9007199254740993)", b"9007199254740993"),
        ("json_encode(math.mininteger)", b"-9223372036854775808"),
        ("json_encode(3.0)", b"3"),
        ("json_encode(-0.0)", b"0"),
        ("json_encode(1e15)", b"1000000000000000"),
        ("json_encode(0.1)", b"0.1"),
        ("json_encode(2^63)", b"9.223372036854776e+18"),
        ("json_encode(1/3)", b"0.3333333333333333"),
        ("json_encode({1, 2, {3}})", b"[1,2,[3]]"),
        ("json_encode({1, nil, 3})", b'{"1":1,"3":3}'),
        ("json_encode({[1.5] = 'x'})", b'{"1.5":"x"}'),
        ("json_encode('a/b\\127\\0\\27')", b'"a/b\x7f\\u0000\\u001b"'),
        ("json_encode('\\255\\195')", b'"\xff\xc3"'),
        ("json_encode({b = 1, a = 2, c = {z = 1, y = 2}})", b'{"a":2,"b":1,"c":{"y":2,"z":1}}'),
    ],
)
def test_encode(vm: LuaLibrary, expression: str, text: bytes) -> None:
    assert vm.value(expression) == text


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("json_encode(print)", "json_encode can't write a function"),
        ("json_encode({items = {1, {name = print}}})", "json_encode can't write a function at items[2].name"),
        ("json_encode({{coroutine.create(print)}})", "json_encode can't write a thread at [1][1]"),
        ("json_encode(0/0)", "json_encode can't write NaN"),
        ("json_encode({x = -1/0})", "json_encode can't write an infinite number at x"),
        ("local t = {} t.a = {t} json_encode(t)", "json_encode can't write a table inside itself at a[1]"),
        ("json_encode({[true] = 1})", "json_encode can't write a key of type boolean"),
        ("json_encode({x = {[{}] = 1}})", "json_encode can't write a key of type table at x"),
        ("json_encode({[5] = 1, ['5'] = 2})", 'json_encode can\'t write the keys 5 and "5" together'),
        (
            "local t = {} for _ = 1, 100000 do t = {t} end json_encode(t)",
            "json_encode can't write a table nested deeper than 1000 levels (1000 levels down)",
        ),
    ],
)
def test_what_has_no_json_raises_at_the_scripts_line_and_names_its_path(
    vm: LuaLibrary, script: str, message: str
) -> None:
    assert vm.error(f"\n{script}") == f"script.lua:2: {message}"


def test_a_failed_encode_leaves_nothing_behind(vm: LuaLibrary) -> None:
    vm.run("shared = {1} pcall(json_encode, {shared, print})")
    assert vm.value("json_encode({shared, shared})") == b"[[1],[1]]"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"null", None),
        (b" [1, 2.5, -3e2 , 0.5E-1] ", [1, 2.5, -300, 0.05]),
        (b"1.0", 1),
        (b"-0", 0),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"18446744073709551616", 2.0**64),
        (b'{"a":null,"b":[]}', {b"b": {}}),
        (b"[1,null,3]", {1: 1, 3: 3}),
        (b'{"a":1,"a":2}', {b"a": 2}),
        (rb'"\"\\\/\b\f\n\r\t"', b'"\\/\b\f\n\r\t'),
        (rb'"\u00e9\u20AC\u0000"', "é€\0".encode()),
        (rb'"\ud83d\ude00"', "😀".encode()),
        (rb'"\ud83d"', "\ufffd".encode()),
        (rb'"\ude00\ud83d\u0041"', "\ufffd\ufffdA".encode()),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd😀".encode()),
        (b'"\xff\xfe"', b"\xff\xfe"),
        (b'"\x7f"', b"\x7f"),
        (b'{\r\n\t"a" : { "b" : [ ] } }', {b"a": {b"b": {}}}),
        (b'{"a\\nb":1}', {b"a\nb": 1}),
    ],
)
def test_decode(vm: LuaLibrary, text: bytes, value: object) -> None:
    assert vm.run("return json_decode(...)", text) == [value, None]
    assert type(vm.run("return json_decode(...)", text)[0]) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", b"expected a value at the end of the text"),
        (b"  ", b"expected a value at the end of the text"),
        (b"nul", b"expected a value at line 1, column 1 (byte 1)"),
        (b"[1,\n 2,\n  x]", b"expected a value at line 3, column 3 (byte 11)"),
        (b"[1 2]", b"expected ',' or ']' at line 1, column 3 (byte 3)"),
        (b"[1,]", b"expected a value at line 1, column 4 (byte 4)"),
        (b'{"a" 1}', b"expected ':' at line 1, column 5 (byte 5)"),
        (b"{a:1}", b"expected a string as key at line 1, column 2 (byte 2)"),
        (b'{"a":1,}', b"expected a string as key at line 1, column 8 (byte 8)"),
        (b'{"a":1', b"expected ',' or '}' at the end of the text"),
        (b'"abc', b"string without an end at line 1, column 2 (byte 2)"),
        (b'"a\nb"', b"control character in a string at line 1, column 3 (byte 3)"),
        (b'"\\x"', b"bad escape at line 1, column 2 (byte 2)"),
        (b'"\\u12"', b"bad \\u escape at line 1, column 2 (byte 2)"),
        (b"01", b"bad number at line 1, column 1 (byte 1)"),
        (b"1.", b"bad number at line 1, column 1 (byte 1)"),
        (b"-", b"bad number at line 1, column 1 (byte 1)"),
        (b"1e999", b"number out of range at line 1, column 1 (byte 1)"),
        (b"1" + b"0" * 400, b"number out of range at line 1, column 1 (byte 1)"),
        (b"1 2", b"expected the end at line 1, column 3 (byte 3)"),
        (b"[NaN]", b"expected a value at line 1, column 2 (byte 2)"),
        (b"[" * 100_000, b"nested deeper than 1000 levels at line 1, column 1001 (byte 1001)"),
        (b'{"a":' * 100_000, b"nested deeper than 1000 levels at line 1, column 5001 (byte 5001)"),
    ],
)
def test_a_bad_text_gives_nil_and_where(vm: LuaLibrary, text: bytes, message: bytes) -> None:
    assert vm.run("return json_decode(...)", text) == [None, message]


def test_a_thousand_levels_are_read_and_written(vm: LuaLibrary) -> None:
    text = b"[" * 1000 + b"1" + b"]" * 1000
    assert vm.run("local s = ... return json_encode(json_decode(s))", text) == [text]


def test_more_than_10_mb_are_refused(vm: LuaLibrary) -> None:
    assert vm.run("local n = ... return json_decode('\"' .. ('a'):rep(n - 2) .. '\"')", (10 << 20) + 1) == [
        None,
        b"JSON text of 10485761 bytes is over the limit of 10485760",
    ]
    assert vm.run("local n = ... return #json_decode('\"' .. ('a'):rep(n - 2) .. '\"')", 10 << 20) == [(10 << 20) - 2]


@pytest.mark.parametrize("value", ["{}", "nil", "true", "print"])
def test_decoding_what_is_no_string_is_an_argument_error(vm: LuaLibrary, value: str) -> None:
    kind = {"{}": "table", "true": "boolean", "print": "function"}.get(value, value)
    message = f"script.lua:1: bad argument #1 to 'json_decode' (string expected, got {kind})"
    assert vm.error(f"json_decode({value})") == message
    assert vm.value("json_decode(12)") == 12


def test_it_works_where_an_op_could_not(vm: LuaLibrary) -> None:
    script = """
      local rows = {{n = 2}, {n = 1}}
      table.sort(rows, function(a, b) return json_encode(a) < json_encode(b) end)
      return json_encode(rows), (("[1] [2]"):gsub("%S+", function(s) return json_decode(s)[1] end))
    """
    assert vm.run(script) == [b'[{"n":1},{"n":2}]', b"1 2"]
