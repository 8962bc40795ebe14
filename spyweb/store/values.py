"""Typed values in SQLite.

A write goes through the writer's lane and is one statement, unless somebody watches the key or its namespace keeps a
history: then the entry, its past version and the event stand or fall together.  Scripts' reads have a connection of
their own; one of a key that is just being written queues behind that write.  Questions about many keys have another,
and first let the writes be committed that were asked for before.
"""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.store import clearing, recording, scanning, transfer
from spyweb.store.batch import Kind, Lane
from spyweb.store.changes import Desk
from spyweb.store.events import SqliteEvents
from spyweb.store.locks import SqliteLocks
from spyweb.store.patterns import compile_pattern
from spyweb.store.protocol import (
    NOBODY,
    Entry,
    HistoryRules,
    Item,
    Loaded,
    Order,
    Origin,
    Transform,
    ValueStats,
)
from spyweb.store.recording import Trail
from spyweb.store.sealing import Codec

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqliteValues:
    def __init__(
        self, lanes: Lanes, clock: Clock, codec: Codec, events: SqliteEvents, locks: SqliteLocks, history: HistoryRules
    ) -> None:
        self._writer = lanes.writer
        self._reader = lanes.reader
        self._questions = lanes.questions
        self._clock = clock
        self._codec = codec
        self._events = events
        self._locks = locks
        self._history = history
        self._sweeper = clearing.Sweeper(lanes.writer, codec, clock, events, locks, history)
