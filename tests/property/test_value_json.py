"""Whatever a script can keep comes back from its JSON exactly, through a line of an export too."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import NULL, Value, ValueKey
from spyweb.store.interchange.lines import entry_line, parse_line
from spyweb.store.interchange.value_json import BASE64, NUMBER, TABLE, decode_value, encode_value, number_of
from spyweb.store.model.entries import Entry, PortableEntry
from tests.fakes.values import same

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(allow_nan=False).filter(lambda number: isinstance(number_of(number), float))
STRINGS = (
    st.binary(max_size=8)
    | st.text(max_size=8).map(str.encode)
    | st.sampled_from([BASE64, TABLE, NUMBER]).map(str.encode)
)
KEYS: st.SearchStrategy[ValueKey] = STRINGS | WHOLE | FLOATS.filter(math.isfinite) | st.booleans()
SCALARS: st.SearchStrategy[Value] = STRINGS | WHOLE | FLOATS | st.booleans() | st.just(NULL)


def is_no_sequence(table: dict[ValueKey, Value]) -> bool:
    """A table whose keys are 1..n is a list."""
    return not table or {type(key) for key in table} != {int} or set(table) != set(range(1, len(table) + 1))


VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS, inside, max_size=4).filter(is_no_sequence),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_comes_back_from_its_json(value: Value) -> None:
    text = encode_value(value)
    assert b"\n" not in text
    assert same(decode_value(text), value)


@given(STRINGS, VALUES, st.none() | st.integers(1, 1 << 53))
def test_any_entry_comes_back_from_its_line(key: bytes, value: Value, expires_ms: int | None) -> None:
    entry = Entry(value=value, version=1, created_ms=5, updated_ms=6, expires_ms=expires_ms)
    item = PortableEntry(namespace="scope:a\nb", key=key, entry=entry)
    line = entry_line(item)
    assert line.count(b"\n") == 1
    back = parse_line(line)
    assert same(back.entry.value, value)
    assert (back.namespace, back.key, back.entry.expires_ms) == ("scope:a\nb", key, expires_ms)
