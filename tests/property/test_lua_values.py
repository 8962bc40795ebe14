"""Values between Python and Lua, through a real worker's codec in a VM: what goes in comes back the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spyweb.lua import wire
from spyweb.lua.worker import limits
from spyweb.lua.worker.values import StepKind
from spyweb.lua.worker.vm import VM, compile_lua_files, init_of
from tests.fakes.vm import FakeCallbacks

INIT = init_of({"ops": ["give"], "engine": {}})

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False).filter(lambda number: not number.is_integer())
    | st.binary(max_size=300)
)
keys = st.binary(max_size=20) | st.integers(-(2**63), 0) | st.booleans()


def tables(contents: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    present = contents.filter(lambda value: value is not None)
    return st.lists(present, min_size=1, max_size=20) | st.dictionaries(keys, present, max_size=8).filter(_distinct)


def _distinct(table: Any) -> bool:
    """Python takes True for 1 and False for 0; Lua does not."""
    return not (any(type(key) is bool for key in table) and any(type(key) is int for key in table))


lists_of_values = st.lists(st.recursive(scalars, tables, max_leaves=30), max_size=6)

TOLERATED = [HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]


class Echo:
    """A script that gives back what it is given, in another way each time."""

    def __init__(self, script: bytes) -> None:
        self.vm = VM(compile_lua_files(), INIT, 64 << 20, FakeCallbacks(), main_count=limits.MAIN_COUNT)
        assert self.vm.compile(b"x.lua", script) is None
        self.vm.begin(1, "run", wire.pack([{}, False]))
        self.told = self.vm.start(1)

    def send(self, values: list[object]) -> list[object]:
        self.told = self.vm.step(1, int(wire.Form.PACKED), [wire.pack(values)])
        assert self.told[0] == StepKind.OP
        back = self.told[3:]
        return list(back) if self.told[2] == wire.Form.PLAIN else wire.unpack(back[0])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    echo = Echo(b"local function again(...) return again(give(...)) end again()")
    yield echo
    echo.vm.close()


@settings(suppress_health_check=TOLERATED)
@given(values=lists_of_values)
def test_values_come_back_from_lua_as_they_went_in(echo: Echo, values: list[object]) -> None:
    assert _typed(echo.send(values)) == _typed(values)


@settings(suppress_health_check=TOLERATED)
@given(number=st.integers(-(2**62), 2**62).map(float))
def test_integral_floats_come_back_as_integers(echo: Echo, number: float) -> None:
    assert _typed(echo.send([[number]])) == _typed([[int(number)]])


def _typed(value: object) -> object:
    """With what Python takes for equal told apart: True and 1, 1 and 1.0."""
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if isinstance(value, dict):
        return {(type(key), key): _typed(item) for key, item in value.items()}
    return type(value), value
