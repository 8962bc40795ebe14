"""The ops db_query and db_exec: a script's own SQL on data/user.db, which all jobs and the server of a node share.

This module decides which values a script may pass and gets; store/user_sql/views.py decides what its SQL may touch.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from spyweb.errors import OpError
from spyweb.model import Null
from spyweb.ops.arguments import INTEGER_LIMIT, ArgumentReader, Mismatch, read_table, read_text, type_name
from spyweb.ops.op import DB, OpEffect, OpFamily, op, refuse_in_dry_run
from spyweb.ops.world import Call
from spyweb.settings.units import format_duration
from spyweb.store.user_sql.connection import MOST_PARAMETERS, Answered, Parameter, Row, Statement

HEADERS = "table<string, string|number>"


def read_sql(value: object) -> str:
    try:
        return read_text(value).decode("utf-8")
    except UnicodeDecodeError:
        raise Mismatch("SQL in UTF-8 expected; other bytes go into params") from None


def read_parameters(value: object) -> Sequence[Parameter]:
    """Read an array up to its highest index, holes as NULL."""
    params = read_table(value)
    for key in params:
        if isinstance(key, bool) or not isinstance(key, int) or not 1 <= key <= MOST_PARAMETERS:
            raise Mismatch(f"an array of at most {MOST_PARAMETERS} values expected")
    highest = max((key for key in params if isinstance(key, int)), default=0)
    return [_parameter(number, params.get(number)) for number in range(1, highest + 1)]


Sql = Annotated[str, ArgumentReader("string", "string", read_sql)]
Parameters = Annotated[Sequence[Parameter], ArgumentReader("table", "table", read_parameters)]

FAMILY = OpFamily(name="SQL", errors="A statement that SQLite refuses raises its message.")


@op(needs=DB, effect=OpEffect.LOOKS, types=f"(sql: string, params?: any[]): {HEADERS}[] rows")
async def db_query(call: Call, sql: Sql, params: Parameters = ()) -> list[Row]:
    """Execute one SQL statement of any kind and return its rows, each a table by column; NULL columns are absent."""
    return list((await _ask(call, "db_query", sql, params, wants_rows=True)).rows)


@op(needs=DB, types="(sql: string, params?: any[]): integer changed")
async def db_exec(call: Call, sql: Sql, params: Parameters = ()) -> int:
    """Execute one SQL statement and return the number of rows that it inserted, updated or deleted."""
    return (await _ask(call, "db_exec", sql, params, wants_rows=False)).changed


async def _ask(call: Call, function: str, sql: str, params: Sequence[Parameter], *, wants_rows: bool) -> Answered:
    if call.world.ownership.node and not call.node:
        reason = "the tables of user.db are of one node, and any node may run this job"
        raise OpError(f'{function}: {reason}: set its node = "NAME"')
    if call.cpu_limit_ms is not None and call.tally.sql_cpu_s * 1000 >= call.cpu_limit_ms:
        limit = format_duration(call.cpu_limit_ms)
        raise OpError(f"{function}: the SQL of this run has taken more of a processor than its cpu_limit ({limit})")
    statement = Statement(
        sql=sql, parameters=params, wants_rows=wants_rows, largest=call.memory_limit, only_reads=call.is_dry
    )
    sees_others = call.policy.shows_others
    try:
        answered = await call.world.sql.ask(call.job, call.owner, statement, sees_others=sees_others)
    except CancelledError:  # its run or branch is being ended; the CPU time until then counts
        call.tally.sql_cpu_s += call.world.sql.cpu_of(call.job, statement, sees_others=sees_others)
        raise
    call.tally.sql_cpu_s += answered.cpu_s
    if answered.would_write:
        refuse_in_dry_run(call, f"{function} with a statement that writes", ())
    if answered.error is not None:
        raise answered.error
    return answered


def _parameter(number: int, value: object) -> Parameter:
    match value:
        case None | Null():
            return None
        case bool() | int():
            return int(value)
        case float():
            return int(value) if value.is_integer() and -INTEGER_LIMIT <= value < INTEGER_LIMIT else value
        case bytes():
            with suppress(UnicodeDecodeError):
                return value.decode("utf-8")
            return value  # it comes back the same as a BLOB
    raise Mismatch(f"parameter {number}: a string, number or boolean expected, got a {type_name(value)}")
