"""The worker's end of a pair of real sockets."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from spyweb.confined.frames import HEADER, MAX_FRAME, FrameReader
from spyweb.lua import wire
from spyweb.lua.worker import link, priority
from spyweb.lua.worker.link import Receiver, Sender

PATIENCE = 10.0  # seconds that a thread may take for what it does at once
BIG = b"x" * (4 * wire.BULK)


class HasLeft(Exception):
    """Stands for the end of the process."""


class Daemon:
    """The other ends of the sockets, and the threads that work at the worker's ends."""

    def __init__(self) -> None:
        self.small, self.small_of_worker = socket.socketpair()
        self.bulk, self.bulk_of_worker = socket.socketpair()
        self.threads: list[threading.Thread] = []
        for mine in (self.small, self.bulk):
            mine.settimeout(PATIENCE)

    def start_thread(self, _name: str, work: Callable[[], object]) -> bool:
        def guarded() -> None:
            with suppress(HasLeft):
                work()

        self.threads.append(threading.Thread(target=guarded, daemon=True))
        self.threads[-1].start()
        return True

    def hear(self, sock: socket.socket, count: int, most: int = MAX_FRAME) -> list[wire.FromWorker]:
        """Wait for so many messages."""
        reader = FrameReader(wire.decode_from_worker, most)
        heard: list[wire.FromWorker] = []
        while len(heard) < count:
            heard += reader.feed(sock.recv(1 << 16))
        return heard

    def hears_nothing(self, sock: socket.socket) -> bool:
        return not select.select([sock], [], [], 0)[0]

    def hang_up(self) -> None:
        for sock in (self.small, self.bulk):
            sock.close()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    def exit_process(_code: int) -> None:
        raise HasLeft

    daemon = Daemon()
    monkeypatch.setattr(os, "_exit", exit_process)
    monkeypatch.setattr(priority, "give_way", lambda: None)
    monkeypatch.setattr(link, "could_start_thread", daemon.start_thread)
    yield daemon
    daemon.hang_up()
    for thread in daemon.threads:  # none may be left to end the process of the tests
        thread.join(PATIENCE)
        assert not thread.is_alive()
    for sock in (daemon.small_of_worker, daemon.bulk_of_worker):
        sock.close()


@pytest.fixture
def sender(daemon: Daemon) -> Iterator[Sender]:
    sender = Sender(daemon.small_of_worker, daemon.bulk_of_worker)
    yield sender
    daemon.hang_up()
    with suppress(HasLeft):
        sender.post_bulk(pong(0))  # has the thread that waits for big messages leave


def pong(number: int) -> wire.Pong:
    return wire.Pong(number, 0, [])


def big(run: int) -> wire.PackedOpCall:
    return wire.PackedOpCall(run, 1, "echo", BIG, 1)


def test_what_was_posted_leaves_in_its_order_and_not_before_it_is_flushed(daemon: Daemon, sender: Sender) -> None:
    sender.flush()
    assert sender.flushed > 0
    daemon.start_thread("posting", lambda: sender.post(pong(0)))
    daemon.threads[0].join(PATIENCE)
    for number in range(1, 100):
        sender.post(pong(number))
    assert sender.waiting == 100
    assert daemon.hears_nothing(daemon.small)

    sender.flush()

    assert sender.waiting == 0
    assert daemon.hear(daemon.small, 100) == [pong(number) for number in range(100)]


def test_a_large_batch_leaves_in_frames_that_the_daemon_accepts(daemon: Daemon, sender: Sender) -> None:
    for run in range(10):
        sender.post(wire.OpCall(run, 1, "echo", [b"x" * (wire.BULK - 100)]))
    daemon.start_thread("flushing", sender.flush)

    heard = daemon.hear(daemon.small, 10, most=wire.SMALL_FRAME)
    assert [message.run for message in heard if isinstance(message, wire.OpCall)] == [*range(10)]


def test_big_messages_share_one_thread_keep_their_order_and_hold_up_no_small_one(
    daemon: Daemon, sender: Sender
) -> None:
    for run in (1, 2, 3):
        sender.post_bulk(big(run))  # which nobody reads
    sender.post(pong(4))
    sender.flush()

    assert daemon.hear(daemon.small, 1) == [pong(4)]
    assert daemon.hear(daemon.bulk, 3) == [big(1), big(2), big(3)]
    assert len(daemon.threads) == 1


def test_where_no_thread_can_be_had_big_messages_leave_by_the_one_that_posts_them_and_one_is_asked_for_again(
    daemon: Daemon, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(name: str, _work: Callable[[], object]) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr(link, "could_start_thread", refuse)
    for run in (1, 2):
        daemon.start_thread("posting", partial(sender.post_bulk, big(run)))
        assert daemon.hear(daemon.bulk, 1) == [big(run)]
    assert asked == ["bulk out"] * 2


def test_a_worker_that_can_send_to_nobody_ends(daemon: Daemon, sender: Sender) -> None:
    daemon.small.close()
    sender.post(pong(1))

    with pytest.raises(HasLeft):
        sender.flush()


def test_messages_are_read_as_soon_as_they_are_whole(daemon: Daemon) -> None:
    receiver = Receiver(daemon.small_of_worker)
    frame = wire.frame([wire.PingWorker(1), wire.PingWorker(2)])

    daemon.small.sendall(frame[:5])
    assert receiver.read() == []
    daemon.small.sendall(frame[5:])
    assert receiver.read() == [wire.PingWorker(1), wire.PingWorker(2)]


def test_a_message_larger_than_what_is_read_at_once_arrives_whole(daemon: Daemon) -> None:
    receiver = Receiver(daemon.bulk_of_worker)
    message = wire.ResumeRun(1, 1, int(wire.Form.PACKED), [BIG])
    daemon.start_thread("sending", lambda: daemon.bulk.sendall(wire.frame([message])))

    heard: list[wire.ToWorker] = []
    while not heard:
        heard = receiver.read()

    assert heard == [message]


@pytest.mark.parametrize("end", ["small", "small_of_worker"])
def test_a_worker_whose_daemon_hangs_up_or_whose_socket_is_lost_ends(daemon: Daemon, end: str) -> None:
    receiver = Receiver(daemon.small_of_worker)
    getattr(daemon, end).close()

    with pytest.raises(HasLeft):
        receiver.read()


def test_what_is_no_message_is_an_error(daemon: Daemon) -> None:
    daemon.small.sendall(HEADER.to_bytes(4, "little") + b"\xc1\xc1\xc1\xc1")

    with pytest.raises(ValueError, match="malformed"):
        Receiver(daemon.small_of_worker).read()
