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

IS = """
local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for k, v in pairs(a) do if not same(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end
function is(a, b) if not same(a, b) then error(dump(a) .. " is not " .. dump(b), 2) end end
"""  # in Lua


def same(left: object, right: object) -> bool:
    """Equal, and of equal types all the way down: 1, 1.0 and True are three things."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        of_left, of_right = ([list(item) for item in sorted(each.items(), key=repr)] for each in (left, right))
        return same(of_left, of_right)
    return left == right
