"""One command under way, as the daemon sees it: its leash, its streams and its end.

The beginning of what it writes is kept, and its lines are passed on as they come.  What comes faster than the log takes
it, or after what is kept is full, is counted: the command never waits for either.
"""

from __future__ import annotations

import asyncio
import os
import socket
from asyncio import Future
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from signal import SIGKILL

import msgspec
from msgspec import Struct

from spyweb.clock import Clock, Handle
from spyweb.confined.frames import FrameReader
from spyweb.limits import LOG_BYTES_PER_S
from spyweb.programs.sweep import send
from spyweb.programs.wire import GRACE_S, STOP, CommandTaken, FromNanny, Outcome, StartCommand, decode_from_nanny

LINES_PER_S = 5_000  # of all commands together, as of one worker
BURST_S = 0.2  # what is granted ahead
LONGEST_LINE = 4_096  # bytes of a line in the log; stdout and stderr have the whole of it
PIECE = 32_768  # bytes read or written at once: with 16 commands at once a turn of the loop moves 1 MB at most
LAST_PIECES = 64  # read after the end: what a pipe can hold
LATE_S = 2.0  # after GRACE_S: a nanny that has not ended its command then is given up
MOST_HEARD = 65_536  # bytes of what a nanny says

TellOutput = Callable[[str, bytes], None]  # the stream's name, a line
TellLine = Callable[[bytes], None]


class LineCredit:
    """Grants lines at a rate bounded in lines and in bytes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._lines = LINES_PER_S * BURST_S
        self._bytes = LOG_BYTES_PER_S * BURST_S

    def take(self, size: int) -> bool:
        """Return whether a line of this size may be logged now."""
        if self._lines < 1 or self._bytes < size:
            now = self._clock.monotonic()
            passed, self._at = now - self._at, now
            self._lines = min(self._lines + passed * LINES_PER_S, LINES_PER_S * BURST_S)
            self._bytes = min(self._bytes + passed * LOG_BYTES_PER_S, LOG_BYTES_PER_S * BURST_S)
        if self._lines < 1 or self._bytes < size:
            return False
        self._lines -= 1
        self._bytes -= size
        return True


class OutputCollector:
    """One stream of one command."""

    def __init__(self, most: int, credit: LineCredit, tell: TellLine) -> None:
        self._most = most
        self._credit = credit
        self._tell = tell
        self._pieces: list[bytes] = []
        self._size = 0
        self._line = b""  # the beginning of one that has not ended, at most LONGEST_LINE of it
        self.dropped = 0  # bytes beyond the most that is kept
        self.untold = 0  # lines

    @property
    def kept(self) -> bytes:
        return b"".join(self._pieces)

    def take(self, data: bytes) -> None:
        room = self._most - self._size
        if room > 0:
            self._pieces.append(data[:room])
            self._size += min(len(data), room)
        self.dropped += max(len(data) - max(room, 0), 0)
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            line = (self._line + data[begin : min(end, begin + LONGEST_LINE)])[:LONGEST_LINE]
            self._line = b""
            begin = end + 1
            if not self._pass_on(line):
                self.untold += data.count(b"\n", begin)
                begin = data.rfind(b"\n") + 1
                break
        self._line += data[begin : begin + LONGEST_LINE - len(self._line)]

    def close(self) -> None:
        """Pass on the last line, if it has no end."""
        if self._line:
            self._pass_on(self._line)
            self._line = b""

    def _pass_on(self, line: bytes) -> bool:
        if self._credit.take(len(line)):
            self._tell(line)
            return True
        self.untold += 1
        return False


class Command(Struct, frozen=True, kw_only=True):
    """A command to run."""

    start: StartCommand  # its limits are the runner's
    timeout_s: float
    stdin: bytes = b""
    kept: int  # bytes of stdout, and of stderr; what follows is counted
    tell: TellOutput


class RunningCommand:
    """A command that has been handed over; `gone` is done when nothing of it is left, with how it ended.

    Its outcome is None where it is unknown: its nanny has died, or does not answer.  `taken` is done when a
    nanny has it, or has refused it; False: none ever will.
    """

    def __init__(self, command: Command, start: bytes, clock: Clock, credit: LineCredit) -> None:
        """Open its leash and its streams.  Raises OSError, and then leaves nothing open."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self.gone: Future[Outcome | None] = self._loop.create_future()
        self.taken: Future[bool] = self._loop.create_future()
        self.holder: CommandTaken | None = None  # the nanny that has it
        self.is_over_timeout = False
        self.stdout = OutputCollector(command.kept, credit, partial(command.tell, "stdout"))
        self.stderr = OutputCollector(command.kept, credit, partial(command.tell, "stderr"))
        self._reader = FrameReader(decode_from_nanny, MOST_HEARD)
        self._timer: Handle | None = None
        self._readers: dict[int, OutputCollector] = {}
        self._writers: dict[int, memoryview] = {}
        with ExitStack() as on_failure:
            self._leash, leash = socket.socketpair()
            on_failure.callback(self._leash.close)
            self.theirs = [leash.detach()]  # what is for the nanny: leash, stdin, stdout, stderr
            on_failure.callback(self.given)
            stdin = self._open_stdin(command.stdin, on_failure)
            for collector in (self.stdout, self.stderr):
                reader, writer = os.pipe()
                self.theirs.append(writer)
                on_failure.callback(os.close, reader)
                os.set_blocking(reader, False)
                self._readers[reader] = collector
            on_failure.pop_all()
        self._leash.setblocking(False)
        self._loop.add_reader(self._leash.fileno(), self._hear)
        for reader in self._readers:
            self._loop.add_reader(reader, self._read, reader)
        self._start_writer = os.dup(self._leash.fileno())
        self._write_to(self._start_writer, start)
        if stdin >= 0:
            self._write_to(stdin, command.stdin)

    def given(self) -> None:
        """Close the nanny's descriptors here, once it has them or is not to have them."""
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = []

    def stop(self) -> None:
        """Ask for its end: SIGTERM, and SIGKILL for processes left after GRACE_S."""
        if self.gone.done() or self._timer is not None:
            return
        if self._start_writer in self._writers:  # STOP can't overtake what begins it
            self.kill()
            return
        self._timer = self._clock.call_later(GRACE_S + LATE_S, self.abandon)
        with suppress(OSError):
            self._leash.send(STOP)

    def time_out(self) -> None:
        self.is_over_timeout = True
        self.stop()

    def kill(self) -> None:
        """Ask for its end at once."""
        if self.gone.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(LATE_S, self.abandon)
        with suppress(OSError):
            self._leash.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        """Stop waiting for its end; a nanny that does not answer is killed."""
        if self.holder and not self.gone.done():
            send([self.holder.nanny], SIGKILL)
        self._finish(None)

    def _open_stdin(self, content: bytes, on_failure: ExitStack) -> int:
        """Open its stdin; return our end of it, -1 where there is nothing to write."""
        if not content:
            self.theirs.append(os.open(os.devnull, os.O_RDONLY))
            return -1
        reader, writer = os.pipe()
        self.theirs.append(reader)
        on_failure.callback(os.close, writer)
        return writer

    def _write_to(self, descriptor: int, data: bytes) -> None:
        """Write as fast as it is read, then close the descriptor."""
        os.set_blocking(descriptor, False)
        self._writers[descriptor] = memoryview(data)
        if self._write(descriptor):
            self._loop.add_writer(descriptor, self._write, descriptor)

    def _write(self, descriptor: int) -> bool:
        """Write a piece; return whether something is left."""
        rest = self._writers[descriptor]
        try:
            rest = rest[os.write(descriptor, rest[:PIECE]) :]
        except BlockingIOError:
            return True
        except OSError:  # it is not read any more
            rest = rest[:0]
        self._writers[descriptor] = rest
        if not rest:
            self._close_writer(descriptor)
        return bool(rest)

    def _close_writer(self, descriptor: int) -> None:
        self._loop.remove_writer(descriptor)
        del self._writers[descriptor]
        os.close(descriptor)

    def _read(self, descriptor: int) -> bool:
        """Read a piece; return whether there may be more at once."""
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            return False
        if data:
            self._readers[descriptor].take(data)
            return True
        self._close_reader(descriptor)
        return False

    def _close_reader(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        del self._readers[descriptor]
        os.close(descriptor)

    def _hear(self) -> None:
        try:
            data = self._leash.recv(MOST_HEARD)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for said in self._reader.feed(data):
                self._take(said)
        except (ValueError, msgspec.DecodeError):  # a command has spoken in its name
            self._finish(None)
        if not data:
            self._finish(None)

    def _take(self, said: FromNanny) -> None:
        if not isinstance(said, CommandTaken):
            self._finish(said)
        elif not self.taken.done():
            self.holder = said
            self.taken.set_result(True)

    def _finish(self, outcome: Outcome | None) -> None:
        if self.gone.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._leash.fileno())
        self._leash.close()
        self.given()
        self._close_streams()
        self.gone.set_result(outcome)
        if not self.taken.done():
            self.taken.set_result(outcome is not None)

    def _close_streams(self) -> None:
        """Read the rest of the pipes, and close them."""
        for writer in list(self._writers):
            self._close_writer(writer)
        for reader in list(self._readers):
            for _ in range(LAST_PIECES):
                if not self._read(reader):
                    break
            if reader in self._readers:  # something has it that is not of this command
                self._close_reader(reader)
        self.stdout.close()
        self.stderr.close()
