from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.extraction.worker.document import ExtractionProblem
from spyweb.extraction.worker.yaml_text import LEVELS, NODES, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing\n", None),
        ("--- \n...\n", None),
        ("a: 1\nb: [x, 2.5, true, null, ~]\n", {b"a": 1, b"b": [b"x", 2.5, True, None, None]}),
        ("- a\n-\n  b: c\n- - d\n", [b"a", {b"b": b"c"}, [b"d"]]),
        ("a: |\n  one\n  two\nb: >-\n  three\n  four\n", {b"a": b"one\ntwo\n", b"b": b"three four"}),
        ("'a b': \"c\\u00e4\\n\"", {b"a b": "cä\n".encode()}),
        ("yes: no\non: off\nTrue: FALSE", {b"yes": b"no", b"on": b"off", b"True": False}),
        ("1: a\n1.5: b\ntrue: c\nnull: d", {b"1": b"a", b"1.5": b"b", b"true": b"c", b"null": b"d"}),
        ("[0o17, 0x1F, 017, 1_000, +5, -0, 1e3, .5, 5.]", [15, 31, 17, b"1_000", 5, 0, 1000.0, 0.5, 5.0]),
        ("[9223372036854775807, 9223372036854775808, -9223372036854775808]", [2**63 - 1, 2.0**63, -(2**63)]),
        ("[.inf, -.INF, '.inf', 1e999]", [math.inf, -math.inf, b".inf", math.inf]),
        ("[2026-11-23, 12:30:00, 1.2.3, '5']", [b"2026-11-23", b"12:30:00", b"1.2.3", b"5"]),
        ("[!!str 5, !!int '5', !!float 5, !!bool true, !!null ~]", [b"5", 5, 5, True, None]),
        ("!!map {a: !!seq [b]}", {b"a": [b"b"]}),
        ("a: &x {b: 1}\nc: *x\nd: [*x]", {b"a": {b"b": 1}, b"c": {b"b": 1}, b"d": [{b"b": 1}]}),
        ("a: &x word\n*x : b", {b"a": b"word", b"word": b"b"}),
        ("b: &b {x: 1, y: 2}\nc: {<<: *b, y: 3}", {b"b": {b"x": 1, b"y": 2}, b"c": {b"x": 1, b"y": 3}}),
        ("a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc:\n  <<: [*a, *b]\n",
         {b"a": {b"x": 1}, b"b": {b"x": 2, b"z": 3}, b"c": {b"x": 1, b"z": 3}}),
        ("'<<': 1", {b"<<": 1}),
        ("{}", {}),
        ("[]", []),
        ("a:\nb: c", {b"a": None, b"b": b"c"}),
    ],
)  # fmt: skip
def test_a_text_is_the_value_of_yaml_1_2(text: str, value: object) -> None:
    found = parse_yaml(text.encode())
    assert found == value
    assert repr(found) == repr(value), "True is not 1"


def test_not_a_number_is_one() -> None:
    found = parse_yaml(b".nan")
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a: [1", "line 2: did not find expected ',' or ']'"),
        (b"a: b: c", "line 1: mapping values are not allowed in this context"),
        (b"a\n---\nb", "line 2: one document expected, but another begins here"),
        (b"x: 1\nx: 2", "line 2: the key x is defined twice"),
        (b"a: &x 1\nb: &x 2", "line 2: the anchor x is defined twice"),
        (b"? [a]\n: b", "line 1: a key that is not a text"),
        (b"? {a: b}\n: c", "line 1: a key that is not a text"),
        (b"- &x [a]\n- {*x : b}", "line 1: a key that is not a text"),
        (b"a: *nobody", "line 1: found undefined alias"),
        (b"a: &x\n  b: *x", "line 1: the alias is inside its own anchor"),
        (b"- !!set {a}", "line 1: the tag !!set is not one of YAML's core types"),
        (b"!!timestamp 2026-01-01", "line 1: the tag !!timestamp is not one of YAML's core types"),
        (b"!!binary YQ==", "line 1: the tag !!binary is not one of YAML's core types"),
        (b"!!python/object/apply:os.system [ls]", "line 1: the tag !!python/object/apply:os.system is not one of "
         "YAML's core types"),
        (b"!mine a", "line 1: the tag !mine is not one of YAML's core types"),
        (b"!!seq {a: b}", "line 1: the tag !!seq is not one of YAML's core types"),
        (b"!!int abc", "line 1: abc is not an integer"),
        (b"!!bool 1", "line 1: 1 is not a boolean"),
        (b"<<: 5\na: b", "line 1: << names something that is not a mapping"),
        (b"a: \xff", "the text is not UTF-8 (byte 4)"),
    ],
)  # fmt: skip
def test_what_is_not_such_a_text_is_told_with_its_line(text: bytes, problem: str) -> None:
    with pytest.raises(ExtractionProblem) as found:
        parse_yaml(text)
    assert str(found.value) == problem


@pytest.mark.parametrize("sign", ["[", "{a: ", "- ", "? "])
def test_fifty_thousand_brackets_are_refused(sign: str) -> None:
    """The composer of libyaml's binding ends the process at these."""
    with pytest.raises(ExtractionProblem, match=rf"line 1: (more than {LEVELS} levels|a key that is not a text)"):
        parse_yaml((sign * 50_000).encode())


def test_a_hundred_levels_are_not() -> None:
    assert parse_yaml(b"[" * LEVELS + b"]" * LEVELS) is not None
    with pytest.raises(ExtractionProblem):
        parse_yaml(b"[" * (LEVELS + 1) + b"]" * (LEVELS + 1))


def test_levels_behind_an_alias_count() -> None:
    half = b"&a " + b"[" * 60 + b"]" * 60
    assert parse_yaml(b"- " + half + b"\n- " + b"[" * 39 + b"*a" + b"]" * 39) is not None
    with pytest.raises(ExtractionProblem, match=f"more than {LEVELS} levels"):
        parse_yaml(b"- " + half + b"\n- " + b"[" * 40 + b"*a" + b"]" * 40)


def test_aliases_without_end_are_refused() -> None:
    """Nine names each time: nine to the ninth, of 300 bytes."""
    text = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    text += "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    with pytest.raises(ExtractionProblem, match=f"more than {NODES} nodes, with aliases expanded"):
        parse_yaml(text.encode())


@pytest.mark.parametrize("character", [b"x", b"7"])
def test_aliases_of_a_long_text_or_number_are_refused(character: bytes) -> None:
    with pytest.raises(ExtractionProblem, match="more than 4 MB of text"):
        parse_yaml(b"- &a " + character * 500_000 + b"\n- *a" * 20)


def test_nodes_are_counted() -> None:
    assert parse_yaml(b"[" + b"1," * (NODES - 1) + b"]") == [1] * (NODES - 1)
    with pytest.raises(ExtractionProblem, match=f"more than {NODES} nodes"):
        parse_yaml(b"[" + b"1," * NODES + b"]")


@given(st.text(alphabet="ab01:-?[]{},&*!|>'\"%#~<. \n\t", max_size=60))
def test_any_text_gives_a_value_or_a_problem(text: str) -> None:
    with suppress(ExtractionProblem):
        parse_yaml(text.encode())
