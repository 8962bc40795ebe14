from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

import pytest

from spyweb.logs.queued import CHUNK, QueuedStream, queued_standard_streams

LINE = "x" * 999 + "\n"


class Pipe:
    """A pipe that holds 64 KB until somebody reads."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream = open(writer, "w", encoding="utf-8")  # noqa: SIM115 - closed below

    def read_until(self, end: str) -> str:
        read = b""
        while end.encode() not in read:
            read += os.read(self.reader, CHUNK)
        return read.decode()

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.reader)
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def queue_on(stream: TextIO, limit: int = 100_000) -> QueuedStream:
    def tell(lines: int) -> None:
        made.write(f"{lines} dropped\n")

    made = QueuedStream(stream, tell, limit)
    return made


@pytest.fixture
def queued(pipe: Pipe) -> Iterator[QueuedStream]:
    made = queue_on(pipe.stream)
    yield made
    made.finish()


def test_lines_arrive_in_order(pipe: Pipe, queued: QueuedStream) -> None:
    for number in range(100):
        queued.write(f"{number}\n")
    queued.write("end\n")
    assert pipe.read_until("end\n").split() == [*map(str, range(100)), "end"]


def test_a_write_returns_although_nobody_reads_and_what_is_missing_is_told_once_it_flows_again(
    pipe: Pipe, queued: QueuedStream
) -> None:
    for _ in range(500):  # 500 KB: more than the pipe and the queue hold together
        queued.write(LINE)
    read = pipe.read_until("dropped\n")
    missing = int(read.rpartition("\n")[0].rpartition("\n")[2].split()[0])
    assert missing + read.count(LINE) == 500
    assert 100 <= read.count(LINE) <= 250

    queued.write("as before\n")
    assert pipe.read_until("as before\n") == "as before\n"


def test_one_line_that_is_longer_than_the_queue_is_told_at_once(pipe: Pipe) -> None:
    queued = queue_on(pipe.stream, limit=1_000)
    queued.write(2 * LINE)
    assert pipe.read_until("\n") == "2 dropped\n"
    queued.finish()


def test_the_end_does_not_wait_for_a_reader_that_never_comes(pipe: Pipe, queued: QueuedStream) -> None:
    for _ in range(100):
        queued.write(LINE)
    queued.finish(0)
    os.close(pipe.reader)  # lets the thread end


def test_the_end_writes_what_is_queued(pipe: Pipe, queued: QueuedStream) -> None:
    queued.write("last\n")
    queued.finish()
    pipe.stream.close()
    assert os.read(pipe.reader, 100) == b"last\n"


def test_a_reader_that_is_gone_costs_lines_and_nothing_else(pipe: Pipe, queued: QueuedStream) -> None:
    os.close(pipe.reader)
    for _ in range(500):
        queued.write(LINE)


def test_a_descriptor_that_somebody_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.stream.fileno(), False)
    queued = queue_on(pipe.stream, limit=1 << 20)
    for _ in range(200):
        queued.write(LINE)
    queued.write("end\n")
    assert pipe.read_until("end\n").count(LINE) == 200
    queued.finish()


def test_what_the_encoding_lacks_is_escaped() -> None:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="ascii") as stream:
        queued = queue_on(stream)
        queued.write("caf\xe9 \ud800\n")
        queued.finish()
    assert os.read(reader, 100) == b"caf\\xe9 \\ud800\n"
    os.close(reader)


def test_standard_streams_are_queued_and_put_back(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", pipe.stream)
    monkeypatch.setattr(sys, "stderr", pipe.stream)
    with queued_standard_streams():
        assert sys.stdout is sys.stderr, "one file, one queue"
        sys.stdout.write("out\n")
        sys.stderr.write("err\n")
        assert not sys.stdout.isatty()
        assert sys.stdout.fileno() == pipe.stream.fileno()
    assert sys.stdout is pipe.stream
    assert os.read(pipe.reader, 100) == b"out\nerr\n"


def test_two_files_have_a_queue_each(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Pipe()
    monkeypatch.setattr(sys, "stdout", pipe.stream)
    monkeypatch.setattr(sys, "stderr", other.stream)
    with queued_standard_streams():
        sys.stdout.write("out\n")
        sys.stderr.write("err\n")
    assert (os.read(pipe.reader, 100), os.read(other.reader, 100)) == (b"out\n", b"err\n")
    other.close()
