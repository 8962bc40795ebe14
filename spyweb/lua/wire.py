"""The wire between the daemon and a worker: kinds of messages, and frames that carry batches of them.

Both sides of the border import this module, and a worker imports nothing else of spyweb, so it leans on msgspec alone.
A frame is a 4-byte little-endian length and one msgpack array of messages; a message is an array whose first element
is its kind.  There are two sockets: a single message of more than BULK bytes goes over the second one, so that it never
delays the small ones.  Messages on one socket keep their order, messages on different sockets do not: so a LOAD is
answered by LOADED before its first BEGIN is sent, and what names a run or VM that is not known (any more) is dropped.

Lua values: nil, boolean, integer, float and string (bytes) cross as themselves.  As soon as a list of values holds a
table or anything else, the whole list crosses as one msgpack byte string (PACKED) which only the codec in Lua and the
daemon read; strings inside are `bin`, and what Lua alone has is an extension type (Ext).
Names (of ops, procedures, log levels) and rights cross as text (`str`); whatever a script wrote as bytes (`bin`).

Workers are forked by a zygote, `python -m spyweb.lua.worker.zygote FD`, which speaks frames of this module over the
stream socket FD (ToZygote, FromZygote).  A FORK carries three descriptors (SCM_RIGHTS, on the frame's first byte): the
worker's end of the main socket, of the bulk socket (both stream sockets), and a shared memory of SLOT_BYTES zeroed
bytes.  That memory is two times SLOTS numbers (u64, this machine's byte order), one for each thread that steps VMs: the
run it is stepping, 0 while it steps none; and how many milliseconds of CPU that run has used, as of the last look.
After a death the daemon reads there which runs were being stepped.  The zygote takes the environment it is started
with: TZ must be set in it, nothing else is needed and a worker keeps nothing else.
When the daemon's end of FD closes, the zygote kills its workers and ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, NamedTuple, final

import msgspec
from msgspec import Meta, Struct

BULK = 65_536  # bytes; a larger message would hold up the small ones behind it
MAX_FRAME = 1 << 30  # bytes; more is a broken peer
SMALL_FRAME = 262_144  # bytes of a frame on the first socket from a worker, which cuts its batches accordingly
LARGEST = MAX_FRAME - BULK  # bytes that an op may be passed, or give, at once; what is around them has the rest
LOG_LINE = 16_384  # bytes of one log line; the rest is cut, and the line says so
LOG_MARK = 64  # bytes over that, for what says that it was cut
LOG_CREDIT = 256  # log lines that a new worker may send before its first CREDIT
RESULT = 65_536  # bytes of a packed result; a larger one is not shown
SLOTS = 256  # stepping threads whose run is recorded in the shared memory; further ones are not
SLOT_BYTES = 2 * 8 * SLOTS
TRACEBACK = 65_536  # bytes; the rest is cut
REASON = 8_192  # bytes of the reason why a run ended, or a file does not compile; the rest is cut
MOST_VMS = 8  # that a PONG names
MOST_RIGHTS = 64  # texts in a READY
MOST_CPU_MS = 1 << 53  # and most bytes in use; a larger integer is not every reader's
NO_RUN = 0  # the number of no run


class ToZygote(IntEnum):
    """What the daemon says to the zygote."""

    FORK = 0  # ticket (any number), and three descriptors: main socket, bulk socket, slots
    KILL = 1  # pid: SIGKILL, if it is a worker that has not been reported as EXITED (so never a stranger's pid)


class FromZygote(IntEnum):
    """What the zygote says."""

    READY = 0  # its pid; first, once
    FORKED = 1  # ticket, pid of the worker
    FAILED = 2  # ticket, reason: there is no such worker
    EXITED = 3  # pid, exit code (negative: the signal that ended it)


class ToWorker(IntEnum):
    """What the daemon says."""

    INIT = 0  # {ops: [name], engine: {..}, env: {name: value}}; first, once
    LOAD = 1  # vm, chunk name ("jobs/x.lua"), source, memory limit in bytes, [[chunk name, source]...] of its further
    # files; answered by LOADED
    BEGIN = 2  # run (above 0), vm, procedure (procedures.py), packed argument list, CPU limit in ms
    RESUME = 3  # run, number, Form, value...: the answer to its OP of that number; dropped when the run has given it up
    CANCEL = 4  # run, Why
    DROP = 5  # vm: close it once no run is left in it; a discarded VM needs none
    PING = 6  # number
    CREDIT = 7  # log lines that may be sent in addition
    TEMPLATE = 8  # number (as of a VM), chunk name, source, memory limit, further files (as in LOAD), spares: what
    # FRESH makes VMs of, so many of them before they are asked for.  DROP forgets it.  Always on the main socket
    FRESH = 9  # run, vm, template, procedure, packed argument list, CPU limit in ms: as a BEGIN in a VM of its own,
    # which goes with the run: no LOADED, no DROP
    CHECK = 10  # as LOAD, and answered as one, but nothing is kept: whether these files compile


class FromWorker(IntEnum):
    """What a worker says."""

    READY = 0  # {rights: [text]}: what it has given up; first, once
    LOADED = 1  # vm, None or the reason why it does not compile (text, "file:line: text"); such a VM is gone
    OP = 2  # run, number (1, 2, ... in each run), name, Form (PLAIN or PACKED), value..., and after a PACKED one how
    # many values it holds, in all tables together
    END = 3  # run, Ended, reason (bytes), traceback (bytes), CPU in ms, packed result or None, is its VM discarded
    LOG = 4  # run, level, text (bytes); costs one credit
    PONG = 5  # number, bytes in use by all VMs, [[vm, bytes]] of the largest
    STUCK = 6  # run, Why, CPU in ms: it has not ended 1 s after its limit; NO_RUN: a VM is being closed for too long


class Form(IntEnum):
    """How the values of a message are written."""

    PLAIN = 0  # scalars, one by one
    PACKED = 1  # one byte string: the msgpack array of all of them
    RAISE = 2  # RESUME only: an error message, raised at the caller's line
    RAISE_PACKED = 3  # RESUME only: a packed list of one error value


class Why(IntEnum):
    """Why a run must end, as the worker's hook sees it."""

    NOTHING = 0
    CPU = 1
    TIMEOUT = 2
    CANCELLED = 3
    STOPPED = 4
    MEMORY = 5


class Ended(IntEnum):
    """How a run ended, as its worker saw it."""

    SUCCESS = 0
    ERROR = 1
    CPU = 2
    TIMEOUT = 3
    CANCELLED = 4
    STOPPED = 5
    MEMORY = 6
    UNBEGUN = 7  # its VM was gone when BEGIN arrived: nothing of it has run, it may begin in another VM
    SKIPPED = 8  # by its own condition: its handler has not run


Count = Annotated[int, Meta(ge=0, le=MOST_CPU_MS)]


class Ready(Struct, array_like=True, tag=int(FromWorker.READY)):
    facts: dict[str, Annotated[list[str], Meta(max_length=MOST_RIGHTS)]]


class Loaded(Struct, array_like=True, tag=int(FromWorker.LOADED)):
    vm: int
    reason: Annotated[str, Meta(max_length=REASON)] | None


class End(Struct, array_like=True, tag=int(FromWorker.END)):
    run: int
    ended: Ended
    reason: Annotated[bytes, Meta(max_length=REASON)]
    traceback: Annotated[bytes, Meta(max_length=TRACEBACK)]
    cpu_ms: Count
    result: Annotated[bytes, Meta(max_length=RESULT)] | None
    discarded: bool


class Pong(Struct, array_like=True, tag=int(FromWorker.PONG)):
    number: int
    used: Count
    largest: Annotated[list[tuple[int, Count]], Meta(max_length=MOST_VMS)]


class Stuck(Struct, array_like=True, tag=int(FromWorker.STUCK)):
    run: int
    why: Why
    cpu_ms: Count


Report = Ready | Loaded | End | Pong | Stuck


_REPORTS: dict[object, type[Report]] = {
    int(FromWorker.READY): Ready,
    int(FromWorker.LOADED): Loaded,
    int(FromWorker.END): End,
    int(FromWorker.PONG): Pong,
    int(FromWorker.STUCK): Stuck,
}


def report_of(message: object) -> Report:
    """What a worker says besides OP and LOG, checked as a whole; raises ValueError.

    Of one type at a time: msgspec looks at a union anew in each call, which takes far longer.
    """
    kind = message[0] if type(message) is list and message else None
    report = _REPORTS.get(kind) if type(kind) is int else None
    if report is None:
        raise ValueError("a message of a kind that there is not")
    return msgspec.convert(message, report)


class Ext(IntEnum):
    """msgpack extension types for what only Lua has.  The payload is a text."""

    FOREIGN = 1  # a function, thread or userdata: its type's name
    CYCLE = 2  # a table inside itself
    DEEP = 3  # nested too deep
    NULL = 4  # the sentinel for JSON null
    EMPTY_ARRAY = 5  # the sentinel for an empty array


@final
class Foreign:
    """A Lua value that has no counterpart outside its VM."""

    __slots__ = ("kind", "name")
    __match_args__ = ("kind", "name")

    def __init__(self, kind: Ext, name: str = "") -> None:
        self.kind = kind
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and (self.kind, self.name) == (other.kind, other.name)

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def __repr__(self) -> str:
        return f"Foreign({self.kind!r}, {self.name!r})"


def _write_ext(value: object) -> msgspec.msgpack.Ext:
    """Not a Struct or dataclass: msgspec would write those as maps, and a sentinel would not come back as itself."""
    if isinstance(value, Foreign):
        return msgspec.msgpack.Ext(int(value.kind), value.name.encode())
    raise TypeError(f"a {type(value).__name__} can't cross the wire")


_SENTINELS = {int(kind): Foreign(kind, "table") for kind in (Ext.NULL, Ext.EMPTY_ARRAY)}
_LONGEST_NAME = 64  # bytes of what Lua calls a type


def _read_ext(code: int, data: memoryview) -> Foreign:
    """A list may hold hundreds of thousands of them: to make each anew would take ten times as long."""
    return _SENTINELS.get(code) or _foreign(code, bytes(data[:_LONGEST_NAME]))


@lru_cache(64)
def _foreign(code: int, name: bytes) -> Foreign:
    return Foreign(Ext(code), name.decode("ascii", "replace"))


_encoder = msgspec.msgpack.Encoder(enc_hook=_write_ext)
_decoder = msgspec.msgpack.Decoder(ext_hook=_read_ext, strict=False)
_decoder_of_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])


def pack(values: object) -> bytes:
    return _encoder.encode(values)


def unpack(data: bytes | memoryview) -> list[object]:
    """The list that a PACKED string holds.  A table whose keys are 1..n is a list, any other a dict."""
    return _decoder.decode(data)  # type: ignore[no-any-return]


class Packed(NamedTuple):
    """A value that is still to be unpacked."""

    raw: msgspec.Raw
    elements: int  # values in it, and in the few beside it


def unpack_outer(data: bytes, elements: int) -> list[object]:
    """The same, but what takes more than BULK bytes is left Packed, for `unpack_by_items`."""
    return [Packed(raw, elements) if len(raw) > BULK else _decoder.decode(raw) for raw in _decoder_of_raws.decode(data)]


def unpack_by_items(packed: Packed) -> Generator[None, None, object]:
    """Unpack one value: the items of a list one by one, so that others can have their turn in between."""
    try:
        items = _decoder_of_raws.decode(packed.raw)
    except msgspec.ValidationError:  # it is no list
        return _decoder.decode(packed.raw)
    unpacked: list[object] = []
    for item in items:
        yield
        unpacked.append(_decoder.decode(item))
    return unpacked


def frame(messages: list[object]) -> bytes:
    body = _encoder.encode(messages)
    return len(body).to_bytes(4, "little") + body


def small_frames(messages: list[object]) -> list[bytes]:
    """Frames of at most SMALL_FRAME bytes, as long as no message is larger by itself."""
    whole = frame(messages)
    if len(whole) <= SMALL_FRAME or len(messages) == 1:
        return [whole]
    half = len(messages) // 2
    return small_frames(messages[:half]) + small_frames(messages[half:])


def pieces(message: list[object]) -> list[bytes]:
    """The frame of one message, cut so that big strings are sent from where they are.

    Packing 8 MB copies it to fresh pages, for milliseconds with the interpreter's lock held.
    """
    cut: list[bytes] = []
    between = bytearray(b"\x91" + _array_head(len(message)))  # an array of one
    for value in message:
        if type(value) is bytes and len(value) > BULK:
            between += b"\xc6" + len(value).to_bytes(4, "big")
            cut += [bytes(between), value]
            between.clear()
        else:
            between += _encoder.encode(value)
    cut.append(bytes(between))
    cut[0] = sum(map(len, cut)).to_bytes(4, "little") + cut[0]
    return cut


def _array_head(size: int) -> bytes:
    """As msgpack begins an array; an encoder writes one with its items only."""
    return bytes([0x90 | size]) if size < 16 else b"\xdd" + size.to_bytes(4, "big")


class Reader:
    """Cuts a byte stream into frames, and frames into messages.

    It never holds more than one frame that is not whole, of at most so many bytes.
    """

    def __init__(self, most: int = MAX_FRAME) -> None:
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[list[object]]:
        """Every message that is whole by now, in order.  Raises ValueError on a frame that can't be right."""
        buffer = self._buffer
        buffer += data
        messages: list[list[object]] = []
        with memoryview(buffer) as view:
            end = _decode_frames(view, messages, self._most)
        if end:
            del buffer[:end]
        return iter(messages)


def _decode_frames(view: memoryview, messages: list[list[object]], most: int) -> int:
    """Gives where the last whole frame ends."""
    at, end = 0, len(view)
    while end - at >= 4:
        size = int.from_bytes(view[at : at + 4], "little")
        if size > most:
            raise ValueError(f"a frame of {size} bytes")
        if end - at - 4 < size:
            break
        messages.extend(_decoder.decode(view[at + 4 : at + 4 + size]))
        at += 4 + size
    return at
