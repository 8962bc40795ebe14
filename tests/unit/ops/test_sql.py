from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.errors import OpError
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import NULL
from spyweb.ops.sql import read_parameters
from spyweb.ops.world import Call
from spyweb.ownership import Ownership
from tests.fakes.ops import ask, make_call, make_world


@pytest.fixture
async def call(tmp_path: Path) -> AsyncIterator[Call]:
    world = make_world(root=tmp_path, clock=RealClock())
    async with world.sql:
        yield make_call(world)


def test_an_array_goes_up_to_its_highest_index_and_its_holes_are_null() -> None:
    assert read_parameters({3: b"c", 1: b"a"}) == ["a", None, "c"]
    assert read_parameters({}) == []
    assert read_parameters({1: NULL}) == [None]


def test_booleans_and_whole_numbers_are_integers() -> None:
    given: dict[object, object] = {1: True, 2: False, 3: 3.0, 4: 2.5, 5: -(2.0**63), 6: 2.0**63, 7: math.inf, 8: 7}
    wanted = [1, 0, 3, 2.5, -(1 << 63), 2.0**63, math.inf, 7]
    found = read_parameters(given)
    assert found == wanted
    assert [type(value) for value in found] == [type(value) for value in wanted]


def test_a_string_is_text_or_when_it_is_no_utf8_a_blob() -> None:
    assert read_parameters({1: "ß\0".encode(), 2: b"\xff"}) == ["ß\0", b"\xff"]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({1: {b"a": 1}}, "parameter 1: a string, number or boolean expected, got a table"),
        ({1: b"a", 2: [1]}, "parameter 2: a string, number or boolean expected, got a table"),
        ({1: Foreign(Ext.FOREIGN, "function")}, "parameter 1: a string, number or boolean expected, got a function"),
        ({b"name": 1}, "an array of at most 32766 values expected"),
        ({0: 1}, "an array of at most 32766 values expected"),
        ({1 << 40: 1}, "an array of at most 32766 values expected"),
        ({1.5: 1}, "an array of at most 32766 values expected"),
        ({True: 1}, "an array of at most 32766 values expected"),
    ],
)
async def test_anything_else_as_a_parameter_raises(call: Call, params: dict[object, object], reason: str) -> None:
    with pytest.raises(OpError) as refused:
        await ask(call, "db_query", b"SELECT 1", params)
    assert str(refused.value) == f"bad argument #2 to 'db_query' ({reason})"


async def test_errors_raise_with_the_functions_name(call: Call) -> None:
    with pytest.raises(OpError, match=r"^db_query: no such table: nowhere$"):
        await ask(call, "db_query", b"SELECT * FROM nowhere")
    with pytest.raises(OpError, match=r"^db_exec: not authorized: ATTACH and VACUUM are not allowed$"):
        await ask(call, "db_exec", b"ATTACH 'x' AS x")
    with pytest.raises(OpError, match=r"bad argument #1 to 'db_exec' \(SQL in UTF-8 expected"):
        await ask(call, "db_exec", b"SELECT '\xff'")


async def test_what_a_statement_has_taken_is_counted_where_its_run_is_ended_meanwhile(call: Call) -> None:
    assert await ask(call, "db_query", b"SELECT 1 AS a") == [[{"a": 1}]]
    before = call.tally.sql_cpu_s
    endless = b"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    asked = asyncio.get_running_loop().create_task(ask(call, "db_query", endless))
    await asyncio.sleep(0.05)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert call.tally.sql_cpu_s > before


async def test_what_sql_takes_of_a_processor_is_counted_and_has_the_runs_limit(call: Call) -> None:
    call = replace(call, cpu_limit_ms=10_000)
    count = b"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 200000) SELECT count(*) AS n FROM c"
    assert await ask(call, "db_query", count) == [[{"n": 200_000}]]
    assert call.tally.sql_cpu_s > 0
    call.tally.sql_cpu_s = 10.0
    for name in ("db_query", "db_exec"):
        with pytest.raises(OpError, match=rf"^{name}: the SQL of this run has taken more .* its cpu_limit \(10s\)$"):
            await ask(call, name, b"SELECT 1")
    assert await ask(replace(call, cpu_limit_ms=None), "db_query", b"SELECT 1 AS a") == [[{"a": 1}]]


async def test_a_job_that_any_node_may_run_has_no_tables_of_its_own(call: Call) -> None:
    shared = replace(call, world=replace(call.world, ownership=Ownership(call.world.clock, node="fra")))
    for name in ("db_query", "db_exec"):
        with pytest.raises(OpError, match=rf'^{name}: the tables of user.db are of one node.*: set its node = "NAME"$'):
            await ask(shared, name, b"SELECT 1")
    assert await ask(replace(shared, node="fra"), "db_query", b"SELECT 1 AS a") == [[{"a": 1}]]
