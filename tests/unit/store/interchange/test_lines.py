"""Entries as JSON Lines."""

from __future__ import annotations

import pytest

from spyweb.store.interchange.lines import UNKNOWN_MS, BadLine, LineReader, entry_line, find_namespace, parse_line
from spyweb.store.model.entries import Entry, PortableEntry

LINE = b'{"namespace":"state","key":"a","value":[1],"expires_ms":9,"created_ms":5,"updated_ms":6}\n'
ITEM = PortableEntry(
    namespace="state", key=b"a", entry=Entry(value=[1], version=1, created_ms=5, updated_ms=6, expires_ms=9)
)


def test_an_entry_is_a_line_and_back() -> None:
    assert entry_line(ITEM) == LINE
    assert parse_line(LINE) == ITEM


def test_the_line_that_ends_an_export_is_read_and_counts_its_entries() -> None:
    reader = LineReader()
    other = LINE.replace(b'"a"', b'"b"')
    assert [reader.read(line) for line in (LINE, b'{"end":1}\n', other, b"\n", b'{"end": 1}')][1::2] == [None, None]
    with pytest.raises(BadLine, match=r"line 6: .* ends an export, but 0 entries precede it"):
        reader.read(b'{"end":2}\n')


def test_moments_may_be_left_out() -> None:
    entry = parse_line(b'{"namespace":"global","key":"a","value":"x"}').entry
    assert (entry.expires_ms, entry.created_ms, entry.updated_ms) == (None, UNKNOWN_MS, UNKNOWN_MS)


@pytest.mark.parametrize("name", ["state", "state@prod", "global", "job:prices", "scope:a", "scope:a b\xe4", "scope:"])
def test_these_are_namespaces(name: str) -> None:
    assert find_namespace(name) == name


@pytest.mark.parametrize("name", ["", "State", "state@", "job:", "jobs:a", "global:a", "entry"])
def test_these_are_not(name: str) -> None:
    assert find_namespace(name) is None


def test_the_agent_local_has_the_keys_of_state_where_scripts_look() -> None:
    assert find_namespace("state@local") == "state"
    assert parse_line(b'{"namespace":"state@local","key":"a","value":1}').namespace == "state"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[]", "is not a JSON object"),
        (b'{"namespace":"state","key":"a"', "is not JSON"),
        (b'{"namespace":"state","key":"a"}', "has no value"),
        (b'{"namespace":"state","value":1}', "has no key"),
        (b'{"key":"a","value":1}', "namespace: expected state, state@AGENT, scope:NAME, job:ID or global, not null"),
        (b'{"namespace":"x","key":"a","value":1}', 'not "x"'),
        (b'{"namespace":"state","key":1,"value":1}', "key: expected text, not 1"),
        (b'{"namespace":"state","key":{"$base64":"%"},"value":1}', "key: has a $base64 that is not base64"),
        (b'{"namespace":"state","key":"a","value":{"$table":1}}', "value: has an invalid $table"),
        (b'{"namespace":"state","key":"a","value":1,"ttl":3}', "has a field that no entry has: ttl"),
        (b'{"namespace":"state","key":"a","value":null}', "only a scope can keep JSON's null"),
        (b'{"namespace":"state","key":"a","value":1,"expires_ms":"soon"}', "expires_ms: expected milliseconds"),
        (b'{"namespace":"state","key":"a","value":1,"expires_ms":true}', "expires_ms: expected milliseconds"),
        (b'{"namespace":"state","key":"a","value":1,"expires_ms":-1}', "not -1"),
    ],
)
def test_a_line_that_is_no_entry_tells_why(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_line(line)
    assert reason in str(caught.value)


def test_a_reader_skips_blank_lines_and_counts_them() -> None:
    reader = LineReader()
    assert reader.read(b"\n") is None
    assert reader.read(LINE) == ITEM
    with pytest.raises(BadLine, match=r"^line 3: is not JSON") as caught:
        reader.read(b"{")
    assert caught.value.number == 3


def test_one_key_twice_is_refused_and_one_key_of_two_namespaces_is_not() -> None:
    reader = LineReader()
    reader.read(LINE)
    assert reader.read(LINE.replace(b"state", b"global")) is not None
    with pytest.raises(BadLine, match=r"^line 3: has the same key as line 1$"):
        reader.read(LINE)
