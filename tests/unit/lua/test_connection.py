from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from spyweb.confined.frames import HEADER, MAX_FRAME
from spyweb.lua import wire
from spyweb.lua.connection import FULL_BATCH, BulkStream, FlushQueue, SmallStream, WorkerConnection
from spyweb.lua.wire import FromWorker, OpCall, Pong
from spyweb.lua.wire import PingWorker as Ping
from tests.fakes.clock import settle


@dataclass
class RememberingListener:
    """Keeps what it hears."""

    heard: list[FromWorker] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    losses: int = 0
    most_bulk: int = MAX_FRAME

    def received(self, messages: Sequence[FromWorker]) -> None:
        self.heard.extend(messages)

    def broke_protocol(self, error: Exception) -> None:
        self.errors.append(error)

    def lost(self) -> None:
        self.losses += 1


@dataclass
class ConnectionHarness:
    listener: RememberingListener
    connection: WorkerConnection
    small: socket.socket  # the worker's ends
    bulk: socket.socket
    flush_queue: FlushQueue
    theirs: tuple[socket.socket, socket.socket]  # the daemon's ends

    async def open(self) -> None:
        await self.connection.open(*self.theirs)


@pytest.fixture
async def unopened() -> AsyncIterator[ConnectionHarness]:
    listener, flush_queue = RememberingListener(), FlushQueue()
    connection = WorkerConnection(listener, flush_queue)
    small, their_small = socket.socketpair()
    bulk, their_bulk = socket.socketpair()
    with their_small, their_bulk:
        yield ConnectionHarness(listener, connection, their_small, their_bulk, flush_queue, (small, bulk))
        connection.close()
        await settle()


@pytest.fixture
async def harness(unopened: ConnectionHarness) -> ConnectionHarness:
    await unopened.open()
    return unopened


def frames(sock: socket.socket) -> list[list[int]]:
    """The numbers in the whole frames of pings that have arrived."""
    data = sock.recv(1 << 20)
    found = []
    while data:
        size = int.from_bytes(data[:4], "little")
        found.append(
            [message.number for message in wire.decode_to_worker(data[4 : 4 + size]) if isinstance(message, Ping)]
        )
        data = data[4 + size :]
    return found


async def test_what_is_sent_in_one_turn_leaves_as_one_frame(harness: ConnectionHarness) -> None:
    harness.connection.send(Ping(1))
    harness.connection.send(Ping(2))
    await settle()
    harness.connection.send(Ping(3))
    await settle()

    assert frames(harness.small) == [[1, 2], [3]]


async def test_answers_leave_before_the_ops_of_another_worker_are_read(harness: ConnectionHarness) -> None:
    harness.connection.send(Ping(1))
    SmallStream(RememberingListener(), harness.flush_queue).data_received(wire.frame([Pong(2, 0, [])]))

    assert frames(harness.small) == [[1]]


async def test_answers_given_while_a_frame_is_read_leave_with_its_end() -> None:
    flush_queue = FlushQueue()

    class Answering(RememberingListener):
        def received(self, messages: Sequence[FromWorker]) -> None:
            for message in messages:
                flush_queue.add(partial(left.append, message))

    left: list[FromWorker] = []
    SmallStream(Answering(), flush_queue).data_received(wire.frame([Pong(1, 0, []), Pong(2, 0, [])]))

    assert left == [Pong(1, 0, []), Pong(2, 0, [])]


async def test_a_full_batch_does_not_wait_for_the_turn_to_end(harness: ConnectionHarness) -> None:
    for number in range(FULL_BATCH):
        harness.connection.send(Ping(number))

    assert len(frames(harness.small)[0]) == FULL_BATCH


async def test_what_is_sent_before_the_sockets_are_open_waits_in_order(unopened: ConnectionHarness) -> None:
    unopened.connection.send(Ping(1))
    unopened.connection.send_bulk(Ping(2))
    await settle()
    unopened.connection.send(Ping(3))
    await unopened.open()
    await settle()

    assert frames(unopened.small) == [[1], [3]]
    assert frames(unopened.bulk) == [[2]]


async def test_only_big_messages_take_the_second_socket(harness: ConnectionHarness) -> None:
    harness.connection.send_sized(Ping(1), wire.BULK)
    harness.connection.send_sized(Ping(2), wire.BULK + 1)
    await settle()

    assert frames(harness.small) == [[1]]
    assert frames(harness.bulk) == [[2]]


@pytest.mark.parametrize("which", ["small", "bulk"])
@pytest.mark.parametrize("piece", [1, 3, 5, 1000])
async def test_frames_arrive_whole_however_they_are_cut(harness: ConnectionHarness, which: str, piece: int) -> None:
    sock = getattr(harness, which)
    first, second = OpCall(1, 1, "a", [True, None]), OpCall(2, 1, "b", [])
    third = OpCall(3, 1, "c", [b"x" * 300])
    data = wire.frame([first, second]) + wire.frame([third])

    for start in range(0, len(data), piece):
        sock.send(data[start : start + piece])
        await settle()

    assert harness.listener.heard == [first, second, third]
    assert not harness.listener.errors


@pytest.mark.parametrize("which", ["small", "bulk"])
@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", b"\x01\x00\x00\x00\x07"])
async def test_a_frame_that_cannot_be_right_is_reported_and_not_raised(
    harness: ConnectionHarness, which: str, data: bytes
) -> None:
    getattr(harness, which).send(data)
    await settle()

    assert harness.listener.errors
    assert not harness.listener.heard


async def test_a_shorter_message_after_a_longer_one_has_nothing_of_it_and_an_empty_frame_is_reported(
    harness: ConnectionHarness,
) -> None:
    messages = [OpCall(size, 1, "a", [b"x" * size]) for size in (3000, 20, 5000)]
    for message in messages:
        harness.bulk.sendall(wire.frame([message]) + bytes(4 if message is messages[-1] else 0))
        await settle()

    assert harness.listener.heard == messages
    assert (len(harness.listener.errors), harness.listener.losses) == (1, 0)


async def test_each_lost_socket_is_told_and_sending_goes_on_without_effect(harness: ConnectionHarness) -> None:
    harness.small.shutdown(socket.SHUT_RDWR)
    await settle()
    assert harness.listener.losses == 1

    harness.connection.close()
    harness.connection.send(Ping(1))
    harness.connection.send_bulk(Ping(2))
    await settle()
    assert harness.listener.losses == 2


async def test_a_link_that_cannot_open_closes_both_sockets(unopened: ConnectionHarness) -> None:
    small, bulk = unopened.theirs
    small.close()
    with pytest.raises((OSError, ValueError)):
        await unopened.open()

    assert bulk.fileno() == -1


def test_what_is_sent_to_a_worker_that_has_just_died_is_dropped() -> None:
    uvloop = pytest.importorskip("uvloop")
    problems: list[object] = []

    async def send_while_it_dies() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
        (small, their_small), (bulk, their_bulk) = socket.socketpair(), socket.socketpair()
        connection = WorkerConnection(RememberingListener(), FlushQueue())
        await connection.open(small, bulk)
        their_small.close()
        their_bulk.close()
        for _ in range(10):
            connection.send(Ping(1))
            connection.send_bulk(Ping(1))
            await asyncio.sleep(0)
        connection.close()

    uvloop.run(send_while_it_dies())
    assert problems == []


async def test_what_there_is_of_an_unfinished_message_is_given_back_with_the_link(harness: ConnectionHarness) -> None:
    harness.bulk.sendall((5000).to_bytes(4, "little") + b"x" * 1000)
    await settle()
    stream = harness.connection._bulk._protocol
    assert isinstance(stream, BulkStream)
    assert memoryview(stream.get_buffer(0).obj).nbytes == 5000

    harness.connection.close()
    assert memoryview(stream.get_buffer(0).obj).nbytes == HEADER


async def test_the_looks_at_one_unfinished_message_are_counted(harness: ConnectionHarness) -> None:
    assert [harness.connection.look() for _ in range(3)] == [0, 0, 0]
    whole = wire.frame([OpCall(1, 1, "a", [b"x" * 5000])])
    harness.bulk.sendall(whole[:4])
    await settle()
    assert [harness.connection.look() for _ in range(3)] == [1, 2, 3]
    harness.bulk.sendall(whole[4:])
    await settle()
    assert harness.connection.look() == 0
