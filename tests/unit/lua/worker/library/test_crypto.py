from __future__ import annotations

import hashlib

import pytest

from tests.fakes.lua_library import LuaLibrary


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("crypto.sha256('abc')", b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("crypto.sha1('abc')", b"a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("crypto.md5('')", b"d41d8cd98f00b204e9800998ecf8427e"),
        ("#crypto.sha512('abc')", 128),
        ("crypto.sha256(3.0) == crypto.sha256('3')", True),
        ("crypto.sha256('\\0\\255') == crypto.sha256('\\0') ", False),
        ("crypto.hmac_sha256('key', 'The quick brown fox jumps over the lazy dog')",
         b"f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"),
        ("crypto.base64_encode('\\0\\255a')", b"AP9h"),
        ("crypto.base64_decode('AP9h')", b"\0\xffa"),
        ("crypto.equal('a', 'a')", True),
        ("crypto.equal('a', 'b')", False),
        ("crypto.equal('a', 'ab')", False),
        ("crypto.equal('', '')", True),
        ("crypto.uuid() ~= crypto.uuid()", True),
        ("#crypto.random_string(20)", 20),
        ("crypto.random_string(0)", b""),
    ],
)  # fmt: skip
def test_its_functions(vm: LuaLibrary, expression: str, value: object) -> None:
    assert vm.value(expression) == value


def test_text_that_is_not_base64_is_nil_and_a_message(vm: LuaLibrary) -> None:
    assert vm.run("return crypto.base64_decode('a b')") == [None, b"this is not base64"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("crypto.sha256()", "bad argument #1 to 'crypto.sha256' (string expected, got nil)"),
        ("crypto.md5({})", "bad argument #1 to 'crypto.md5' (string expected, got table)"),
        ("crypto.base64_decode(true)", "bad argument #1 to 'crypto.base64_decode' (string expected, got boolean)"),
        ("crypto.hmac_sha256('key')", "bad argument #2 to 'crypto.hmac_sha256' (string expected, got nil)"),
        ("crypto.equal('a', nil)", "bad argument #2 to 'crypto.equal' (string expected, got nil)"),
        ("crypto.random_string('9')", "bad argument #1 to 'crypto.random_string' (number expected, got string)"),
        *[
            (
                f"crypto.random_string({bad})",
                "bad argument #1 to 'crypto.random_string' (a length from 0 to 1048576 expected)",
            )
            for bad in ("-1", "1e9", "0/0")
        ],
    ],
)
def test_a_wrong_type_raises_at_the_scripts_line(vm: LuaLibrary, script: str, message: str) -> None:
    assert vm.error(f"\n{script}") == f"script.lua:2: {message}"


def test_a_long_text_is_an_op() -> None:
    asked: list[tuple[object, ...]] = []

    def answer(*given: object) -> list[object]:
        asked.append(tuple(len(each) if isinstance(each, bytes) and len(each) > 99 else each for each in given))
        return [None if given[0] == b"base64_decode" else b"made"]

    vm = LuaLibrary(ops={"_crypto": answer})
    assert vm.run("return crypto.sha256(('x'):rep(1 << 20))") == [hashlib.sha256(b"x" * (1 << 20)).hexdigest().encode()]
    assert asked == []
    vm.run("long = ('x'):rep((1 << 20) + 1)")
    assert vm.run("return crypto.sha1(long), crypto.hmac_sha256('key', long)") == [b"made", b"made"]
    assert vm.run("return crypto.base64_decode(long)") == [None, b"this is not base64"]
    size = (1 << 20) + 1
    assert asked == [(b"sha1", size), (b"hmac_sha256", size, b"key"), (b"base64_decode", size)]


def test_long_texts_are_compared_piece_by_piece(vm: LuaLibrary) -> None:
    script = """
      local a = ("x"):rep(3 << 20)
      return crypto.equal(a, a), crypto.equal(a, "y" .. a:sub(2)), crypto.equal(a, a:sub(2) .. "y")
    """
    assert vm.run(script) == [True, False, False]
