"""An extractor process: `python -m spyweb.extraction.worker.main FD`; FD is its end of a stream socket (see wire.py).

It gives up its rights before it reads a page, takes one after the other, and ends when the daemon's end of the socket
closes or the daemon dies.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import socket
import sys
from collections.abc import Iterable, Iterator

import msgspec

from spyweb.confined.frames import receive_frame, receive_whole
from spyweb.confined.parent import die_with_parent, leave_signals_to_parent, stand_behind_parent
from spyweb.confined.sandbox import give_up_rights
from spyweb.extraction import wire
from spyweb.extraction.wire import Ask, Check, Done, Extract, ExtractorReady, FindLines, PackedPart, ParseYaml, Rows
from spyweb.extraction.worker.document import ExtractionProblem, check, extract, find_lines
from spyweb.extraction.worker.yaml_text import parse_yaml

MIB = 1 << 20
MEMORY_LIMIT = 1024 * MIB  # of addresses; the largest page normally takes far less
PAGES = 10_000  # until it is replaced, because of memory leaks
LARGE = MIB // 4  # bytes; after a larger page free memory is given back, since malloc would keep much of it
OUTPUT_LIMIT = 64 * MIB  # of all values, each counted with VALUE_COST: nested items each repeat a part of the page
VALUE_COST = 64
BEHIND = 5  # levels of niceness behind the daemon: a page can wait, the daemon's loop can not
PART = 65_536  # of values, in one frame

TOO_MUCH_MEMORY = "the page takes more than 1 GB of memory"
TOO_MUCH_OUTPUT = "the fields hold more than 64 MB"

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's


class Serving:
    """Serves one request after the other from the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._served = 0
        # Cython can't raise some errors: a list of nodes cut off for lack of memory must not seem whole.
        self._unraised: list[BaseException] = []
        sys.unraisablehook = lambda it: self._unraised.append(it.exc_value or MemoryError())

    def serve(self) -> None:
        """Serve until the daemon closes the socket, even in the middle of a message."""
        while frame := receive_frame(self._socket):
            ask = wire.ask_decoder.decode(frame)
            size = 0 if isinstance(ask, Check) else ask.size
            body = receive_whole(self._socket, size)
            if len(body) < size:
                return
            self._served += 1
            self._socket.sendall(self._answer(ask, body))

    def _answer(self, ask: Ask, body: bytes) -> bytes:
        """Send the answer except for its end, and return the end."""
        rest = b""
        problem: str | None = None
        try:
            for message in _work(ask, body):
                if rest:
                    self._socket.sendall(rest)
                rest = wire.frame(message)
            if self._unraised:
                raise self._unraised[0]
        except ExtractionProblem as found:
            problem = str(found)
        except (MemoryError, SystemError) as error:  # C code may continue after a MemoryError, and raise this instead
            if not isinstance(error, MemoryError) and not isinstance(error.__cause__, MemoryError):
                raise
            problem = TOO_MUCH_MEMORY
        if len(body) > LARGE and _malloc_trim is not None:
            _malloc_trim(0)
        holds_memory = problem is TOO_MUCH_MEMORY or (len(body) > LARGE and _malloc_trim is None)
        return rest + wire.frame(Done(problem, is_spent=holds_memory or self._served >= PAGES))


def _work(ask: Ask, body: bytes) -> Iterator[msgspec.Struct]:
    match ask:
        case Check():
            check(ask.selector, of_field=ask.of_field)
        case Extract():
            yield from _in_parts(extract(ask, body))
        case ParseYaml():
            yield from _packed(parse_yaml(body))
        case FindLines():
            yield from _packed(find_lines(ask.pattern, body))


def _packed(value: object) -> Iterator[PackedPart]:
    data = msgspec.msgpack.encode(value)
    for start in range(0, len(data), PART):
        yield PackedPart(data[start : start + PART])


def _in_parts(rows: Iterable[list[str]]) -> Iterator[Rows]:
    part: list[list[str]] = []
    size, left = 0, OUTPUT_LIMIT
    for row in rows:
        part.append(row)
        size += VALUE_COST * (1 + len(row)) + sum(map(len, row))
        if size > left:
            raise ExtractionProblem(TOO_MUCH_OUTPUT)
        if size > PART:
            yield Rows(part)
            part, size, left = [], 0, left - size
    yield Rows(part)


def main() -> None:
    die_with_parent()
    leave_signals_to_parent()
    sock = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    gc.freeze()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    rights = [stand_behind_parent(BEHIND), *give_up_rights()]
    try:
        sock.sendall(wire.frame(ExtractorReady(rights)))
        Serving(sock).serve()
    except ConnectionError:
        return  # the daemon has ended


if __name__ == "__main__":
    main()
