"""The ops store_* and global_store_*: text that outlives runs, reloads and restarts, per job or shared by all.

A failure of the store is logged and counted in the run, and the call returns nil, nothing, or its default; it raises in
the script only if the settings say so (`on_error` of [store], `on_store_error` of a job).  A key that is too long is
such a failure.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

import structlog

from spyweb.errors import OpError, StoreError
from spyweb.limits import KEY, too_large
from spyweb.logs.output import tell_refusal
from spyweb.lua.session import NOTHING, Results, StoreAnswer
from spyweb.model import OnStoreError, Value
from spyweb.ops.arguments import KeptText, Text, Whole
from spyweb.ops.op import GLOBAL_STORE, OpEffect, OpFamily, op
from spyweb.ops.world import Call
from spyweb.store.encoding import as_text
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.values import Values

FAMILY = OpFamily(
    name="stored values",
    errors="A failing disk is logged and marks the run (`success, 3 storage errors`), `store_get` returns nil and "
    "`global_store_incr` its default.",
)

LOGGED_PER_RUN = 10  # failures; a loop that writes to a full disk must not fill the log too

NIL: Results = (None,)
T = TypeVar("T")

log = structlog.get_logger()


@op(effect=OpEffect.KEEPS, types="(key: string|number, value: string|number)")
def store_set(call: Call, key: Text, value: KeptText) -> StoreAnswer[None]:
    """Store a text, or a number as its text, under a key of this job alone; the key has at most 4 KB."""
    return _ask(
        call, "store_set", key, lambda values: values.set(call.namespace, key, value, origin=call.origin), NOTHING
    )


@op(effect=OpEffect.NONE, types="(key: string|number): string? value")
def store_get(call: Call, key: Text) -> StoreAnswer[object]:
    """Return the text under a key of this job alone, or nil."""
    return _ask(call, "store_get", key, lambda values: values.get(call.namespace, key), NIL, _as_text)


@op(effect=OpEffect.KEEPS, types="(key: string|number)")
def store_delete(call: Call, key: Text) -> StoreAnswer[None]:
    """Delete a key of this job alone; a missing key is no error."""
    return _ask(
        call, "store_delete", key, lambda values: values.delete(call.namespace, key, origin=call.origin), NOTHING
    )


@op(needs=GLOBAL_STORE, effect=OpEffect.KEEPS, types="(key: string|number, value: string|number)")
def global_store_set(call: Call, key: Text, value: KeptText) -> StoreAnswer[None]:
    """Store a text, or a number as its text, under a key that all jobs share; the key has at most 4 KB."""
    return _ask(
        call, "global_store_set", key, lambda values: values.set(GLOBAL, key, value, origin=call.origin), NOTHING
    )


@op(needs=GLOBAL_STORE, effect=OpEffect.NONE, types="(key: string|number): string? value")
def global_store_get(call: Call, key: Text) -> StoreAnswer[object]:
    """Return the text under a key that all jobs share, or nil."""
    return _ask(call, "global_store_get", key, lambda values: values.get(GLOBAL, key), NIL, _as_text)


@op(needs=GLOBAL_STORE, effect=OpEffect.KEEPS, types="(key: string|number)")
def global_store_delete(call: Call, key: Text) -> StoreAnswer[None]:
    """Delete a key that all jobs share; a missing key is no error."""
    return _ask(
        call, "global_store_delete", key, lambda values: values.delete(GLOBAL, key, origin=call.origin), NOTHING
    )


@op(
    needs=GLOBAL_STORE,
    effect=OpEffect.KEEPS,
    types="(key: string|number, default: integer, delta: integer): integer sum",
)
def global_store_incr(call: Call, key: Text, default: Whole, delta: Whole) -> StoreAnswer[int]:
    """Add to a number that all jobs share, atomically, and return the sum.

    A missing key, or a text that is not a whole number, counts as `default`.  When the sum exceeds 64 bits, nothing is
    written and `default` is returned.
    """
    return _ask(
        call,
        "global_store_incr",
        key,
        lambda values: values.increment(GLOBAL, key, default, delta, origin=call.origin),
        (default,),
    )


def _as_text(value: Value) -> bytes | None:
    return None if value is None else as_text(value)


def _ask(
    call: Call,
    name: str,
    key: bytes,
    ask: Callable[[Values], Future[T]],
    otherwise: Results,
    convert: Callable[[T], object] = lambda value: value,
) -> StoreAnswer[T]:
    """Ask the store; `otherwise` is the result of a failure, NOTHING if the op returns nothing anyway."""

    def results_of(source: Future[T]) -> Results:
        try:
            value = source.result()
        except StoreError as error:
            count_failure(call, name, error)
            raise_if_wanted(call, name, error)
            return otherwise
        return NOTHING if otherwise is NOTHING else (convert(value),)

    if len(key) <= KEY:
        return StoreAnswer(ask(call.values), results_of)
    refused: Future[T] = asyncio.get_running_loop().create_future()
    refused.set_exception(StoreError(too_large("the key", len(key), KEY)))
    return StoreAnswer(refused, results_of)


def count_failure(call: Call, name: str, error: StoreError) -> None:
    call.tally.storage_errors += 1
    call.world.metrics.errors[name] += 1
    call.world.metrics.storage_errors[name] += 1
    call.world.metrics.storage_error_at_ms = call.world.clock.now_ms()
    if call.tally.storage_errors <= LOGGED_PER_RUN:
        tell_refusal("store.failed", error, op=name, job=call.job, run=call.run)


def raise_if_wanted(call: Call, name: str, error: StoreError) -> None:
    """Raise OpError if the settings say that a failure is an error of the script."""
    if (call.on_store_error or call.world.on_store_error) is OnStoreError.RAISE:
        raise OpError(f"{name}: {error}")
