"""PostgreSQL as the nodes of a simulation meet it: SQLite in memory, with answers that come late or never.

A transaction takes the lane of its node when it arrives, and has it until it is over; all its statements are carried
out as it commits.  Each claim is noted, with who wrote it and who owned the slot: see invariants.py.
"""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future, Task
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from typing import Any, ClassVar, TypeVar, cast

from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.cooperative import within
from spyweb.errors import StoreError, StoreFenced, StoreUnreachable
from spyweb.model import JobId
from spyweb.ownership import EVERY_NODE, Slot, slot_of, slots_in
from spyweb.store.encryption import PLAIN
from spyweb.store.model.entries import NO_HISTORY
from spyweb.store.model.nodes import Beat, Node, NodeState
from spyweb.store.postgres.nodes import IS_ABSENT
from spyweb.store.sqlite.batch import BatchQueue, OpKind
from spyweb.store.sqlite.connection import Connection
from spyweb.store.sqlite.connections import Connections, StorePart
from spyweb.store.sqlite.failures import ForeignError
from spyweb.store.sqlite.migrate import create
from spyweb.store.sqlite.store import IN_MEMORY, Store
from tests.fakes.clock import START_MS
from tests.fakes.simulation.virtual_time import Machine

T = TypeVar("T")

ANSWER_S = 1.5  # until a connection without an answer counts as lost
IDLE_S = 0.75  # until PostgreSQL ends a transaction whose client says nothing
AGAIN_S = 0.3  # between two attempts to connect
LIVING = (NodeState.ALIVE, NodeState.DRAINING)
LATENCIES_S = (0.001, 0.01, 0.02, 0.15)

CLAIM = """
    CREATE TRIGGER {name} AFTER {event} BEGIN INSERT INTO touched
    SELECT writer(), job, owner_of(job, {before}), owner_of(job, pool), {due} FROM cursor WHERE job = NEW.job; END;
"""
PLAIN_MOVE = """
    OLD.due_ms, NEW.due_ms, NEW.schedule LIKE 'every%' AND NEW.schedule = OLD.schedule
    AND OLD.idle_since_ms IS NULL AND NEW.idle_since_ms IS NULL
"""
# Nobody claims a job whose owner does not have its file, as it goes to who has: only its pool changes.
IS_CLAIM = """
    OLD.pool = NEW.pool OR OLD.idle_since_ms IS NULL OR OLD.paused
    OR (NEW.due_ms, NEW.idle_since_ms, NEW.schedule) IS NOT (OLD.due_ms, OLD.idle_since_ms, OLD.schedule)
    OR EXISTS (SELECT 1 FROM run WHERE run.job = NEW.job AND state = 'running')
"""
WATCH = "CREATE TABLE touched (writer, job, owner, owner_after, was_due_ms, due_ms, is_plain);" + "".join(
    CLAIM.format(name=name, event=event, before=before, due=due)
    for name, event, before, due in (
        ("cursor_added", "INSERT ON cursor", "pool", "0, 0, 0"),
        ("cursor_moved", f"UPDATE ON cursor WHEN {IS_CLAIM}", "OLD.pool", PLAIN_MOVE),
        ("run_added", "INSERT ON run WHEN NEW.state = 'running'", "pool", "0, 0, 0"),
        ("run_begun", "UPDATE OF state ON run WHEN NEW.state = 'running'", "pool", "0, 0, 0"),
    )
)


@cache
def template() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create(connection, 0)
    return connection


@dataclass(eq=False)
class Lane:
    """One incarnation on record, and the lock of its row."""

    node: Node
    beats: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_alive(self) -> bool:
        return self.node.state in LIVING


@dataclass(eq=False)
class Transaction:
    """A batch on its way."""

    link: Link
    work: Callable[[Session], Any]
    state: str = "unknown"  # what PostgreSQL knows of it; then open, then committed or aborted
    was_alive: bool = True  # when it arrived
    result: Any = None


class Session:
    """A connection as the functions of the store see it."""

    def __init__(self, database: SimDatabase, tx: Transaction) -> None:
        self._database, self._tx, self._raw = database, tx, database.raw
        self.executemany = database.raw.executemany

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        if sql == "BEGIN IMMEDIATE":
            self._database.begin(self._tx)
        elif sql == "COMMIT" and self._raw.total_changes > self._database.changes_before:
            self._database.commits += 1
            self._database.check(self._tx.link.me)
        return self._raw.execute(sql, parameters)


class SimDatabase:
    is_fenced: ClassVar[str] = "at once"  # planted: "never", or "before"
    is_shared: ClassVar[bool] = False  # planted: transactions of one node may overlap
    slow_s: ClassVar[Sequence[float]] = (0.0,) * 15 + (0.4, 2.5)  # for which a commit may take
    losses: ClassVar[Sequence[str]] = ("",) * 40 + ("request", "answer")

    def __init__(self, dice: Random, check: Callable[[int], None]) -> None:
        self.dice, self.check = dice, check
        self.loop = asyncio.get_running_loop()
        self.lanes: dict[int, Lane] = {}
        self.owners: dict[Slot, int | None] = {}  # as the statement under way sees them
        self.timeline, self.away_until, self.is_calm = "1", 0.0, False
        self.commits = self.changes_before = self._writer = self._restarts = 0
        self._tasks = set[Task[None]]()
        self.raw = sqlite3.connect(":memory:", isolation_level=None)
        template().backup(self.raw)
        self.add_functions(self.raw)
        self.raw.executescript(WATCH)

    def add_functions(self, raw: sqlite3.Connection) -> None:
        raw.create_function("writer", 0, lambda: self._writer)
        raw.create_function("owner_of", 2, lambda job, pool: self.owners.get(slot_of(job, pool)))

    @property
    def is_away(self) -> bool:
        return self.loop.time() < self.away_until

    def now_ms(self) -> int:
        return START_MS + round(self.loop.time() * 1000)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def lose(self) -> str:
        """Return which part of a question and its answer is lost, if one is."""
        return "" if self.is_calm else self.dice.choice(self.losses)

    def restart(self, seconds: float) -> None:
        """Be away for so long; what is open is rolled back."""
        self.away_until = self.loop.time() + seconds
        self._restarts += 1

    def begin(self, tx: Transaction) -> None:
        """Look at the fence, as the first statement of a transaction that writes does."""
        self._writer, self.changes_before = tx.link.me, self.raw.total_changes
        is_alive = {"never": True, "before": tx.was_alive}.get(self.is_fenced, self.lanes[tx.link.me].is_alive)
        if not is_alive:
            raise ForeignError(StoreFenced("the other nodes have declared this one dead"))

    async def transact(self, tx: Transaction) -> None:
        lane = self.lanes[tx.link.me]
        tx.was_alive = lane.is_alive
        if self.is_shared or self.is_fenced != "at once":
            await self._finish(tx)
        else:
            async with lane.lock:
                await self._finish(tx)

    async def _finish(self, tx: Transaction) -> None:
        """Commit, unless the client froze, was cut off or was ended before its COMMIT was sent."""
        slow_s, restarts = 0.0 if self.is_calm else self.dice.choice(self.slow_s), self._restarts
        tx.state = "open"
        await asyncio.sleep(self.dice.choice((0.001, 0.01, 0.04)) + slow_s)
        if not slow_s and tx.link.is_silent:
            await asyncio.sleep(IDLE_S)
        if restarts != self._restarts or (not slow_s and tx.link.is_silent):
            tx.state = "aborted"
        else:
            tx.result, tx.state = tx.work(Session(self, tx)), "committed"

    async def state_of(self, tx: Transaction) -> str:
        """Say how a transaction has ended, in a session that has taken its lane."""
        if not self.is_shared:
            async with self.lanes[tx.link.me].lock:
                pass
        return tx.state

    # the record of the nodes

    def add(self, node: Node) -> int:
        """Add an incarnation once the former one on its machine is dead; 0: that writes right now."""
        for lane in [lane for lane in self.lanes.values() if lane.node.name == node.name and lane.is_alive]:
            if lane.lock.locked():
                return 0
            lane.node = replace(lane.node, state=NodeState.DEAD)
        me = len(self.lanes) + 1
        self.lanes[me] = Lane(replace(node, id=me, beat_ms=self.now_ms()))
        return me

    def beat(self, me: int, offset_ms: int) -> Beat:
        lane = self.lanes[me]
        if not lane.is_alive:
            raise StoreFenced("not on record as alive")
        lane.beats += 1
        lane.node = replace(lane.node, beat_ms=self.now_ms(), offset_ms=offset_ms)
        living = tuple(lane.node for lane in self.lanes.values() if lane.is_alive)
        slots = dict(self.owners)
        return Beat(now_ms=self.now_ms(), timeline=self.timeline, beats=lane.beats, living=living, slots=slots)

    def set_state(self, node: int, state: NodeState) -> bool:
        """Change a node that lives, and to DEAD one that is late."""
        if not (lane := self.lanes.get(node)):
            return False
        if state is NodeState.DEAD and self.now_ms() - lane.node.beat_ms <= lane.node.lease_ms:
            return False
        if lane.lock.locked():
            raise StoreError("locked: try again")
        is_alive = lane.is_alive
        lane.node = replace(lane.node, state=state) if is_alive else lane.node
        return is_alive


@dataclass(eq=False)
class Link:
    """The way of one daemon to the database."""

    database: SimDatabase
    machine: Machine
    clock: Clock
    me: int

    def __post_init__(self) -> None:
        self._boot = self.machine.boots

    @property
    def is_silent(self) -> bool:
        return self.machine.is_frozen or self.machine.is_cut or self._boot != self.machine.boots

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have the database do something.  Raises StoreUnreachable where no answer comes in time."""
        answer: Future[T] = self.database.loop.create_future()
        self.database.spawn(self._serve(work, answer))
        if not await within(self.clock, ANSWER_S, answer):
            answer.cancel()
            raise StoreUnreachable("no answer")
        return answer.result()

    async def _serve(self, work: Callable[[], Awaitable[T]], answer: Future[T]) -> None:
        dice, loses = self.database.dice, self.database.lose()
        await asyncio.sleep(dice.choice(LATENCIES_S[:3]))
        if loses == "request" or self.database.is_away or (self.machine.is_cut and dice.random() < 0.5):
            return
        try:
            found = partial(set_answer, answer, await work(), None)
        except StoreError as error:
            found = partial(set_answer, answer, None, error)
        if loses != "answer" and not self.machine.is_cut:
            await asyncio.sleep(dice.choice(LATENCIES_S))
            self.machine.call(self._boot, found)


def set_answer(answer: Future[Any], found: object, error: Exception | None) -> None:
    if not answer.done() and error is not None:
        answer.set_exception(error)
    elif not answer.done():
        answer.set_result(found)


@dataclass(eq=False)
class SimConnection:
    """The connection of a daemon: after a loss it asks how the batch has ended, for as long as a lease."""

    link: Link
    lease_s: float
    over: Callable[[], None] | None  # called once nothing more is accepted of this node; None where it only reads
    total_changes: int = 0

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.over is not None:
            return await self._write(lambda session: function(session, *arguments), self.over)

        async def read() -> Any:
            return function(self.link.database.raw, *arguments)

        try:
            return await self.link.call(read)
        except StoreError as error:
            return [ForeignError(error)] * len(arguments[0])

    async def _write(self, work: Callable[[Session], Any], over: Callable[[], None]) -> Any:
        database, clock, since = self.link.database, self.link.clock, self.link.clock.monotonic()
        while True:
            tx = Transaction(self.link, work)
            try:
                await self.link.call(partial(database.transact, tx))
            except StoreUnreachable:
                while await self.ask_for(tx) is None:
                    if clock.monotonic() - since > self.lease_s + ANSWER_S:
                        over()
                        await database.loop.create_future()
                    await clock.sleep(AGAIN_S)
            if tx.state == "committed":
                break
        if any(isinstance(each, ForeignError) and isinstance(each.told, StoreFenced) for each in tx.result):
            over()
        return tx.result

    async def ask_for(self, tx: Transaction) -> str | None:
        try:
            return await self.link.call(partial(self.link.database.state_of, tx))
        except StoreUnreachable:
            return None

    async def close(self) -> None: ...


class SimNodes(StorePart):
    """Nodes as spyweb/store/postgres/nodes.py has them."""

    def __init__(self, connections: Connections, link: Link) -> None:
        super().__init__(connections, link.clock)
        self.link, self.me = link, link.me
        self._add_pools(None, [EVERY_NODE])

    def beat(self, folder: bytes = b"", offset_ms: int = 0) -> Any:
        return self._ask(self.link.database.beat, self.me, offset_ms)

    def declare(self, late: int) -> Any:
        return self._ask(self.link.database.set_state, late, NodeState.DEAD)

    def known(self) -> Any:
        return self._ask(lambda: [lane.node for lane in self.link.database.lanes.values()])

    def set_draining(self, node: int, draining: bool) -> Any:
        return self._ask(self.link.database.set_state, node, NodeState.DRAINING if draining else NodeState.ALIVE)

    def take(self, slots: Collection[Slot]) -> Future[list[Slot]]:
        return self._writer.submit(OpKind.WRITE, self.take_now, slots)

    def give(self, slots: Collection[Slot]) -> Future[None]:
        return self._writer.submit(OpKind.WRITE, self.give_now, slots)

    def add_pools(self, pools: Collection[str]) -> Future[None]:
        return self._writer.submit(OpKind.WRITE, self._add_pools, pools)

    def is_free(self, owner: int | None) -> bool:
        return owner in (None, self.me) or not self.link.database.lanes[owner].is_alive

    def take_now(self, _connection: object, slots: Collection[Slot]) -> list[Slot]:
        owners = self.link.database.owners
        taken = [slot for slot in slots if self.is_free(owners[slot])]
        owners.update(dict.fromkeys(taken, self.me))
        return taken

    def give_now(self, _connection: object, slots: Collection[Slot]) -> None:
        owners = self.link.database.owners
        owners.update({slot: None for slot in slots if owners[slot] == self.me})

    def take_out(self, jobs: Collection[tuple[JobId, Slot, str]]) -> Future[None]:
        return self._writer.submit(OpKind.SEVERAL, self._take_out, jobs)

    def _take_out(self, connection: sqlite3.Connection, jobs: Collection[tuple[JobId, Slot, str]]) -> None:
        for job, slot, pool in jobs:
            if self.is_free(self.link.database.owners[slot]) or connection.execute(IS_ABSENT, (job,)).fetchall():
                connection.execute("UPDATE cursor SET pool = ? WHERE job = ? AND pool = ?", (pool, job, slot.pool))

    def _add_pools(self, _connection: object, pools: Collection[str]) -> None:
        for slot in [Slot(pool, number) for pool in pools for number in range(slots_in(pool))]:
            self.link.database.owners.setdefault(slot, None)

    async def _ask(self, function: Callable[..., T], *arguments: object) -> T:
        async def answer() -> T:
            return function(*arguments)

        return await self.link.call(answer)


def open_simulated(link: Link, lease_s: float, over: Callable[[], None]) -> tuple[Store, SimNodes]:
    """Return the store of a node that has joined, and the nodes as it knows them."""

    def queue(over: Callable[[], None] | None = None) -> BatchQueue:
        return BatchQueue(cast("Connection", SimConnection(link, lease_s, over)), IN_MEMORY, link.clock)

    connections = Connections(writer=queue(over), reader=queue(), questions=queue())
    return Store(IN_MEMORY, connections, link.clock, PLAIN, NO_HISTORY), SimNodes(connections, link)
