"""Values as Hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from spyweb.model import NULL, Value

scalars: st.SearchStrategy[Value] = st.one_of(
    st.just(NULL),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=8),
    st.text(max_size=8).map(str.encode),
)
keys = st.one_of(st.binary(max_size=4), st.text(max_size=4).map(str.encode), st.integers(-5, 5), st.floats(-1e3, 1e3))
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inside: st.one_of(st.lists(inside, max_size=4), st.dictionaries(keys, inside, max_size=4)),
    max_leaves=12,
)
