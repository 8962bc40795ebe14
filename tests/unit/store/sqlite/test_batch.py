"""Group commit: what is committed together, what fails alone, what is dropped, and what happens when all is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from spyweb.errors import NoAccess, StoreClosed, StoreError
from spyweb.store import access
from spyweb.store.marker import LastCommit
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.batch import (
    EVERYTHING,
    MOST_UNAWAITED,
    RECENT,
    STEPS_OF_PROGRESS,
    TRIES_ALONE,
    TRIES_TOGETHER,
    UNAWAITED_S,
    BatchQueue,
    Committer,
    Op,
    OpKind,
    Results,
    begin,
    commit,
)
from spyweb.store.sqlite.connection import Connection
from spyweb.store.sqlite.damage import find_last_commit
from spyweb.store.sqlite.store import open_store
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.tables import Gate, make_table, numbers, put, put_all

COUNT_TO = "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT count(*) FROM n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "numbers.db"


@pytest.fixture
def table(path: Path) -> Iterator[sqlite3.Connection]:
    connection = make_table(path)
    yield connection
    connection.close()


@pytest.fixture
async def queue(path: Path, clock: FakeClock) -> AsyncIterator[BatchQueue]:
    queue = BatchQueue(await Connection.open(partial(make_table, path)), path, clock, limit=10)
    yield queue
    await queue.close()


def op(kind: OpKind, function: Callable[..., object], *arguments: object) -> Op:
    nobody: Future[object] = Future(loop=asyncio.new_event_loop())
    nobody.get_loop().close()
    return Op(kind, function, arguments, nobody, None)


def write(value: int, filler: int = 0) -> Op:
    return op(OpKind.WRITE, put, value, filler)


def story(results: Results) -> list[object]:
    return [type(result).__name__ if isinstance(result, Exception) else result for result in results]


def statements(connection: sqlite3.Connection) -> list[str]:
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    return seen


# A batch


def test_a_batch_of_reads_never_asks_for_the_write_lock(table: sqlite3.Connection, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    read = op(OpKind.READ, numbers)

    assert commit(table, [read, read]) == [[], []]
    assert commit(table, [read]) == [[]]
    other.close()


def test_an_op_that_fails_leaves_its_neighbours_alone(table: sqlite3.Connection) -> None:
    assert story(commit(table, [write(1), write(5000), write(2)])) == [1, "IntegrityError", 2]
    assert numbers(table) == [1, 2]


def test_an_op_of_several_statements_stands_or_falls_whole(table: sqlite3.Connection) -> None:
    whole, torn = op(OpKind.SEVERAL, put_all, 10, 11), op(OpKind.SEVERAL, put_all, 20, 21, 5000)

    assert story(commit(table, [write(1), torn, whole, write(2)])) == [1, "IntegrityError", 21, 2]
    assert numbers(table) == [1, 2, 10, 11]

    assert story(commit(table, [torn])) == ["IntegrityError"], "alone as well"
    assert numbers(table) == [1, 2, 10, 11]
    assert not table.in_transaction


def test_a_bug_in_an_op_is_its_own_error(table: sqlite3.Connection) -> None:
    def buggy(connection: sqlite3.Connection) -> int:
        return put(connection, 3) // 0

    assert story(commit(table, [write(1), op(OpKind.SEVERAL, buggy)])) == [1, "ZeroDivisionError"]
    assert numbers(table) == [1]


def test_a_commit_that_fails_fails_only_the_op_to_blame(table: sqlite3.Connection) -> None:
    table.execute("PRAGMA foreign_keys = ON")
    table.execute("CREATE TABLE child (value REFERENCES number DEFERRABLE INITIALLY DEFERRED)")
    orphan = op(OpKind.WRITE, lambda connection: connection.execute("INSERT INTO child VALUES (9)").rowcount)

    assert story(commit(table, [write(1), orphan, write(2)])) == [1, "IntegrityError", 2]
    assert numbers(table) == [1, 2]
    assert not table.in_transaction


def test_a_lock_of_another_process_is_waited_for_once(table: sqlite3.Connection, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    seen = statements(table)

    assert story(commit(table, [write(1), write(2)])) == ["OperationalError"] * 2

    assert seen == ["BEGIN IMMEDIATE"]
    other.execute("ROLLBACK")
    assert commit(table, [write(1), write(2)]) == [1, 2]
    other.close()


class Shared(sqlite3.Connection):
    """A connection to a database where other nodes write too: some of its commits meet theirs, and are refused."""

    was_conflict = False

    def meet(self, conflicts: int) -> None:
        self.left, self.begun = conflicts, list[object]()

    def begin_values(self, places: set[tuple[str, bytes]]) -> None:
        self.begun.append(sorted(places))
        super().execute("BEGIN IMMEDIATE")

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if statement.startswith("BEGIN"):
            self.begun.append(statement)
            self.was_conflict = False
        if statement == "COMMIT" and self.left:
            self.left -= 1
            self.was_conflict = True
            raise sqlite3.OperationalError("another node has written this row")
        return super().execute(statement, *arguments)


@pytest.fixture
def shared(table: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    monkeypatch.setattr("spyweb.store.sqlite.batch.sleep", lambda seconds: None)
    connection = sqlite3.connect(path, isolation_level=None, factory=Shared)
    yield connection
    connection.close()


@pytest.mark.parametrize("conflicts", range(7))
def test_what_meets_another_nodes_write_is_done_again_together_and_then_each_op_alone(
    shared: Shared, conflicts: int
) -> None:
    shared.meet(conflicts)

    assert commit(shared, [write(1), op(OpKind.SEVERAL, put_all, 2, 3), write(4)]) == [1, 5, 4]

    assert numbers(shared) == [1, 2, 3, 4], "nothing twice, nothing missing"
    assert len(shared.begun) == (conflicts + 1 if conflicts < TRIES_TOGETHER else conflicts + 3)


def test_an_op_that_meets_other_nodes_each_time_is_refused_in_the_end(shared: Shared) -> None:
    shared.meet(TRIES_ALONE)

    assert story(commit(shared, [write(1)])) == ["OperationalError"]
    assert commit(shared, [write(2)]) == [2]
    assert numbers(shared) == [2]
    assert len(shared.begun) == TRIES_ALONE + 1


def test_only_a_batch_that_writes_nothing_but_entries_locks_their_rows_first(shared: Shared) -> None:
    shared.meet(0)
    entries = [write(each)._replace(subject=("global", b"%d" % (each % 2))) for each in (1, 2, 3)]

    commit(shared, [*entries, op(OpKind.READ, numbers)])
    commit(shared, [entries[0]._replace(arguments=(4, 0))])
    commit(shared, [entries[1]._replace(arguments=(5, 0)), write(6)])
    commit(shared, [entries[2]._replace(arguments=(7, 0), subject=EVERYTHING)])
    commit(shared, [op(OpKind.READ, numbers)] * 2)

    places = [("global", b"0"), ("global", b"1")]
    assert shared.begun == [places, places[1:], "BEGIN IMMEDIATE", "BEGIN IMMEDIATE", "BEGIN"]


def test_what_is_not_of_entries_makes_them_wait_in_a_conflict_no_longer_than_once(shared: Shared) -> None:
    shared.meet(1)
    entries = [write(each)._replace(subject=("global", b"%d" % each)) for each in (1, 2, 4)]

    assert commit(shared, [*entries[:2], op(OpKind.SEVERAL, put_all, 3), entries[2]]) == [1, 2, 3, 4]

    together, alone = [("global", b"1"), ("global", b"2")], [("global", b"4")]
    assert shared.begun == ["BEGIN IMMEDIATE", together, "BEGIN IMMEDIATE", alone]


# A queue


async def test_what_is_queued_together_is_committed_together(queue: BatchQueue) -> None:
    writes = [queue.submit(OpKind.WRITE, put, value) for value in range(10)]

    assert [await each for each in writes] == list(range(10))
    assert (queue.batches, queue.writes, queue.pending) == (1, 10, 0)


async def test_the_rows_that_a_batch_has_changed_are_told_once_it_is_committed(queue: BatchQueue) -> None:
    told: list[int] = []
    queue.tell_of_rows = told.append

    async def ask(*ops: Callable[[sqlite3.Connection], object]) -> None:
        await asyncio.gather(*(queue.submit(OpKind.SEVERAL, op) for op in ops))

    await ask(lambda connection: put(connection, 1), lambda connection: put(connection, 2))
    await ask(lambda connection: connection.execute("DELETE FROM number").rowcount)
    await queue.submit(OpKind.READ, numbers)

    assert told == [2, 2], "the rows, however many ops they took; nothing of what only reads"


async def test_a_long_queue_is_committed_in_batches_in_its_order(queue: BatchQueue) -> None:
    ended: list[int] = []
    for value in range(25):
        queue.submit(OpKind.WRITE, put, value).add_done_callback(lambda done: ended.append(done.result()))

    await queue.submit(OpKind.READ, numbers)

    assert (queue.batches, ended) == (3, list(range(25)))


async def test_an_op_cancelled_before_its_batch_is_dropped(queue: BatchQueue) -> None:
    gate = Gate()
    held = queue.submit(OpKind.WRITE, gate.hold)
    await asyncio.to_thread(gate.wait_until_entered)
    dropped = queue.submit(OpKind.WRITE, put, 1, subject="one")
    kept = queue.submit(OpKind.WRITE, put, 2, subject="one")

    dropped.cancel()
    gate.open()
    await held

    assert await kept == 2
    assert await queue.submit(OpKind.READ, numbers) == [2]
    assert not queue.pending_writes.is_written("one", b"k")


async def test_an_op_cancelled_after_its_batch_began_stands(queue: BatchQueue) -> None:
    gate = Gate()
    held = queue.submit(OpKind.WRITE, gate.hold)
    written = queue.submit(OpKind.WRITE, put, 1, subject="one")
    await asyncio.to_thread(gate.wait_until_entered)

    written.cancel()
    assert queue.pending_writes.is_written("one", b"k")
    gate.open()
    await held

    assert await queue.submit(OpKind.READ, numbers) == [1]
    assert not queue.pending_writes.is_written("one", b"k")
    assert queue.writes == 2


async def test_who_asked_to_be_told_is_told_once_a_batch_after_its_commit_and_not_of_failures(
    queue: BatchQueue,
) -> None:
    told: list[str] = []

    tell = partial(told.append, "told")
    first = queue.submit(OpKind.WRITE, put, 1, after=tell)
    second = queue.submit(OpKind.WRITE, put, 2, after=tell)
    failed = queue.submit(OpKind.WRITE, put, 5000, after=partial(told.append, "told of a failure"))
    await first
    await second
    with pytest.raises(StoreError):
        await failed
    await asyncio.sleep(0)

    assert told == ["told"]


async def test_who_asked_to_be_told_is_told_though_the_op_was_cancelled_meanwhile(queue: BatchQueue) -> None:
    told = asyncio.Event()
    gate = Gate()
    held = queue.submit(OpKind.WRITE, gate.hold)
    written = queue.submit(OpKind.WRITE, put, 1, after=told.set)
    await asyncio.to_thread(gate.wait_until_entered)
    written.cancel()
    gate.open()

    await held
    await told.wait()


async def test_how_long_the_oldest_op_has_waited_shows_a_stuck_disk(queue: BatchQueue, clock: FakeClock) -> None:
    gate = Gate()
    held = queue.submit(OpKind.WRITE, gate.hold)
    await asyncio.to_thread(gate.wait_until_entered)
    clock.advance(5)
    queued = queue.submit(OpKind.WRITE, put, 1)
    clock.advance(2)

    assert (queue.pending, queue.oldest_pending_s, queue.stalled_s) == (2, 7, 7)

    gate.open()
    await held
    await queued
    assert (queue.pending, queue.oldest_pending_s, queue.stalled_s) == (0, 0, 0)


async def test_a_long_op_that_goes_on_is_not_a_stuck_disk(queue: BatchQueue, clock: FakeClock) -> None:
    await queue.begin_writing(None)
    gate = Gate()

    def take_long(connection: sqlite3.Connection) -> None:
        clock.advance(20)
        connection.execute(COUNT_TO, (STEPS_OF_PROGRESS,)).fetchone()
        gate.hold(connection)

    held = queue.submit(OpKind.READ, take_long)
    await asyncio.to_thread(gate.wait_until_entered)
    assert (queue.oldest_pending_s, queue.stalled_s) == (20, 0)

    clock.advance(11)
    assert (queue.oldest_pending_s, queue.stalled_s) == (31, 11)
    gate.open()
    await held


async def test_what_waited_for_a_long_op_is_not_stuck_once_it_is_begun(queue: BatchQueue, clock: FakeClock) -> None:
    first, second = Gate(), Gate()
    held = [queue.submit(OpKind.WRITE, first.hold)]
    await asyncio.to_thread(first.wait_until_entered)
    held.append(queue.submit(OpKind.WRITE, second.hold))
    clock.advance(20)
    first.open()
    await asyncio.to_thread(second.wait_until_entered)

    assert (queue.oldest_pending_s, queue.stalled_s) == (20, 0)

    second.open()
    await asyncio.gather(*held)


async def test_sqlites_errors_arrive_translated_and_are_counted(queue: BatchQueue, path: Path) -> None:
    with pytest.raises(StoreError, match=f"{path}: CHECK constraint failed"):
        await queue.submit(OpKind.WRITE, put, 5000)

    assert (queue.errors, queue.writes) == (1, 0)


def open_in(folder: Path, connection: sqlite3.Connection) -> None:
    """As SQLite does with a journal, or a temporary file."""
    connection.execute("ATTACH ? AS other", (str(folder / "absent" / "other.db"),))


async def test_what_may_not_be_opened_any_more_is_an_error_of_the_store_to_who_has_it_open(
    queue: BatchQueue, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "no_access", lambda path: NoAccess(f"{path}: no access as me"))
    with pytest.raises(StoreError, match=f"^{path}: no access as me$"):
        await queue.submit(OpKind.READ, partial(open_in, path.parent))


async def test_closing_commits_what_is_queued(queue: BatchQueue, path: Path) -> None:
    writes = [queue.submit(OpKind.WRITE, put, value) for value in range(25)]

    await queue.close()

    assert [each.result() for each in writes] == list(range(25))
    connection = sqlite3.connect(path)
    assert numbers(connection) == list(range(25))
    connection.close()
    with pytest.raises(StoreClosed):
        await queue.submit(OpKind.READ, numbers)


async def test_when_a_batch_fails_as_a_whole_everybody_is_told_and_the_queue_goes_on(
    queue: BatchQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    queue.loop.set_exception_handler(lambda _, context: told.append(str(context["message"])))

    def fail(*_: object) -> Results:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("spyweb.store.sqlite.batch.commit", fail)
        asked = [queue.submit(OpKind.WRITE, put, number, subject=("a", b"k")) for number in range(11)]  # of two batches
        for each in asked:
            with pytest.raises(StoreError, match="the writer failed: MemoryError"):
                await each
    assert told == [queue.trouble]
    assert not queue.pending_writes.is_written("a", b"k")
    assert queue.pending == 0

    assert await queue.submit(OpKind.WRITE, put, 2, subject=("a", b"k")) == 2
    assert queue.trouble == ""


async def test_an_error_while_an_error_is_told_leaves_nobody_waiting(
    queue: BatchQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Exception:
        raise OSError("stale")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    with monkeypatch.context() as patched:
        patched.setattr("spyweb.store.sqlite.batch.translate", fail)
        asked = [queue.submit(OpKind.WRITE, put, number) for number in (1, 5000, 2)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

    assert isinstance(answers[-1], StoreError)
    assert "stale" in queue.trouble
    assert await queue.submit(OpKind.WRITE, put, 4) == 4


# Without memory


class Starved(sqlite3.Connection):
    """One of its statements finds no memory, as SQLite says it to Python."""

    statements_left = 1 << 30

    def execute(self, sql: str, parameters: Sequence[object] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        self.statements_left -= 1
        if self.statements_left == 0:
            raise MemoryError
        return super().execute(sql, parameters)


def make_starved_table(path: Path) -> sqlite3.Connection:
    make_table(path).close()
    return sqlite3.connect(path, isolation_level=None, timeout=0, factory=Starved)


def starve(connection: sqlite3.Connection, statements: int) -> None:
    assert isinstance(connection, Starved)
    connection.statements_left = statements


@pytest.mark.parametrize("statements", range(1, 25))
async def test_whichever_statement_finds_no_memory_what_is_acknowledged_is_there_and_the_lane_goes_on(
    statements: int, path: Path, clock: FakeClock
) -> None:
    queue = BatchQueue(await Connection.open(partial(make_starved_table, path)), path, clock, limit=10)
    try:
        await queue.submit(OpKind.READ, starve, statements)
        asked = [
            queue.submit(OpKind.WRITE, put, 1),
            queue.submit(OpKind.SEVERAL, put_all, 2, 3),
            queue.submit(OpKind.WRITE, put, 5000),  # never fits
            queue.submit(OpKind.WRITE, put, 4),
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await queue.submit(OpKind.READ, starve, 0)

        acknowledged = set()
        for values, answer in (({1}, answers[0]), ({2, 3}, answers[1]), ({4}, answers[3])):
            if isinstance(answer, StoreError):
                assert str(answer).endswith("out of memory")
            else:
                assert answer == max(values) or answer == sum(values)
                acknowledged |= values
        assert await queue.submit(OpKind.WRITE, put, 100) == 100
        assert await queue.submit(OpKind.READ, numbers) == [*sorted(acknowledged), 100]
        assert queue.trouble == ""
    finally:
        await queue.close()


def test_who_comes_after_what_can_not_be_rolled_back_is_told_why() -> None:
    within = sqlite3.OperationalError("cannot start a transaction within a transaction")
    with pytest.raises(MemoryError):
        begin(Mock(in_transaction=True, execute=Mock(side_effect=[MemoryError, within])), [])


async def test_what_nobody_waits_for_is_committed_with_what_somebody_does(queue: BatchQueue) -> None:
    waiting = [queue.submit(OpKind.WRITE, put, number, is_awaited=False) for number in (1, 2)]
    await asyncio.sleep(0.02)
    assert not any(future.done() for future in waiting)
    assert queue.pending == 2
    await queue.submit(OpKind.WRITE, put, 3)
    assert all(future.done() for future in waiting)
    assert queue.batches == 1
    assert await queue.submit(OpKind.READ, numbers) == [1, 2, 3]


async def test_what_nobody_waits_for_is_committed_after_a_while_and_when_there_is_much(
    queue: BatchQueue, clock: FakeClock
) -> None:
    alone = queue.submit(OpKind.WRITE, put, 0, is_awaited=False)
    clock.advance(UNAWAITED_S)
    await alone
    again = queue.submit(OpKind.WRITE, put, 1, is_awaited=False)
    clock.advance(UNAWAITED_S)
    await again
    await asyncio.gather(*(queue.submit(OpKind.WRITE, put, 2 + n, is_awaited=False) for n in range(MOST_UNAWAITED)))
    assert queue.writes == MOST_UNAWAITED + 2


async def test_what_nobody_waits_for_is_committed_at_the_end(path: Path, clock: FakeClock) -> None:
    queue = BatchQueue(await Connection.open(partial(make_table, path)), path, clock)
    last = queue.submit(OpKind.WRITE, put, 1, is_awaited=False)
    await queue.close()
    assert await last == 1
    clock.advance(UNAWAITED_S)


def test_a_commit_is_numbered_in_its_own_transaction_and_noted_after_it(database: sqlite3.Connection) -> None:
    noted: list[tuple[LastCommit, bool]] = []
    committer = Committer(FakeClock(), LastCommit(4, 0), lambda commit: noted.append((commit, database.in_transaction)))
    database.execute("BEGIN IMMEDIATE")
    committer.commit(database)

    assert noted == [(LastCommit(5, START_MS), False)]
    assert find_last_commit(database) == LastCommit(5, START_MS)


async def test_what_changes_nothing_is_not_numbered_and_writes_nothing(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    await store.values.set(GLOBAL, b"k", b"1")
    size = (tmp_path / "spyweb.db-wal").stat().st_size
    await store.probe()
    await store.values.delete(GLOBAL, b"absent")

    assert (tmp_path / "spyweb.db-wal").stat().st_size == size
    await store.close()


def test_a_disk_is_slow_when_even_the_fastest_of_the_latest_commits_was(database: sqlite3.Connection) -> None:
    clock = FakeClock()
    committer = Committer(clock, LastCommit(0, 0))
    took: list[float] = []
    database.set_trace_callback(lambda statement: clock.advance(took[-1]) if statement == "COMMIT" else None)

    for seconds in [0.01, *[0.2] * (RECENT - 1)]:
        took.append(seconds)
        database.execute("BEGIN IMMEDIATE")
        assert committer.usual_s == 0
        committer.commit(database)
    assert round(committer.usual_s, 3) == 0.01
    database.execute("BEGIN IMMEDIATE")
    committer.commit(database)
    assert round(committer.usual_s, 3) == 0.2
