"""The messages between the daemon, its workers and their zygote, and the frames that carry batches of them.

Both sides import this module, and a worker little else of spyweb.
A frame is a 4-byte little-endian length and one msgpack array of messages; a message is an array whose first element
is its tag.  There are two sockets: a single message of more than BULK bytes goes over the second one, so that it never
delays the small ones.  Messages on one socket keep their order, messages on different sockets do not: so a LoadVm is
answered by VmLoaded before its first BeginRun is sent, and a message that names a run or VM that is not
known (any more) is dropped.

Lua values: nil, boolean, integer, float and string (bytes) cross as themselves.  As soon as a list of values holds a
table or anything else, the whole list crosses as one msgpack byte string (packed) which only the codec in Lua and the
daemon read; strings inside are `bin`, and a value that only Lua has is an extension type (Ext).
Names (of ops, procedures, log levels) and rights cross as text (`str`); whatever a script wrote as bytes (`bin`).

Workers are forked by a zygote, `python -m spyweb.lua.worker.zygote FD`, which speaks frames of this module over the
stream socket FD (ToZygote, FromZygote).  A ForkWorker carries three descriptors (SCM_RIGHTS, on the frame's first
byte): the worker's end of the main socket, of the bulk socket (both stream sockets), and a shared memory of SLOT_BYTES
zeroed bytes.  That memory is two times SLOTS numbers (u64, this machine's byte order), one for each thread that steps
VMs: the run it is stepping, 0 while it steps none; and how many milliseconds of CPU that run has used, as of the last
look.  After a death the daemon reads there which runs were being stepped.  The zygote takes the environment it is
started with: TZ must be set in it, nothing else is needed and a worker keeps nothing else.
When the daemon's end of FD closes, the zygote kills its workers and ends.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, final

import msgspec
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder

from spyweb.confined.frames import HEADER, MAX_FRAME, framed
from spyweb.null import NULL, Null

BULK = 65_536  # bytes; a larger message would hold up the small ones behind it
SMALL_FRAME = 262_144  # bytes of a frame on the first socket from a worker, which cuts its batches accordingly
LARGEST = MAX_FRAME - BULK  # bytes that an op may be passed, or give, at once; the rest is for the message around them
LOG_LINE = 16_384  # bytes of one log line; the rest is cut, and the line says so
LOG_MARK = 64  # bytes over that, for the note that it was cut
LOG_CREDIT = 256  # log lines that a new worker may send before its first CREDIT
RESULT = 65_536  # bytes of a packed result; a larger one is not shown
SLOTS = 256  # stepping threads whose run is recorded in the shared memory; further ones are not
SLOT_BYTES = 2 * 8 * SLOTS
TRACEBACK = 65_536  # bytes; the rest is cut
REASON = 8_192  # bytes of the reason why a run ended, or a file does not compile; the rest is cut
MOST_RESULT = SMALL_FRAME - TRACEBACK - REASON - 1024  # bytes of any result, such as the names of all tests
MOST_VMS = 8  # that a PONG names
MOST_RIGHTS = 64  # texts in a READY
MOST_READS, LONGEST_READ = 1_000, 64  # reads of one run that its end tells, and bytes of a random text among them
MOST_CPU_MS = 1 << 53  # and most bytes in use; not every reader of JSON takes a larger integer
NO_RUN = 0  # the number of no run


class Form(IntEnum):
    """The form in which the values of an answer are written."""

    PLAIN = 0  # scalars, one by one
    PACKED = 1  # one byte string: the msgpack array of all of them
    RAISE = 2  # an error message, raised at the caller's line
    RAISE_PACKED = 3  # a packed list of one error value


class Why(IntEnum):
    """The reason why a run must end, as the worker's hook sees it."""

    NOTHING = 0
    CPU = 1
    TIMEOUT = 2
    CANCELLED = 3
    STOPPED = 4
    MEMORY = 5


OVER_TIMEOUT = 6  # beside these: why a branch must end, while its run goes on


class Ended(IntEnum):
    """The end of a run, as its worker saw it; of one that had to end, the number of Why."""

    SUCCESS = 0
    CPU = 1
    TIMEOUT = 2
    CANCELLED = 3
    STOPPED = 4
    MEMORY = 5
    ERROR = 6
    UNBEGUN = 7  # its VM had ended when BeginRun arrived: nothing of it has run, it may begin in another VM
    DECLINED = 8  # by its own condition: its handler has not run
    SKIPPED = 9  # the script said that there was nothing to do


class Message(Struct, array_like=True, gc=False):
    """A message is encoded as an array: its tag, then its fields in this order."""


# From the daemon to the zygote


class ForkWorker(Message, tag=0):
    """Fork a worker; three descriptors come with it: main socket, bulk socket, slots."""

    ticket: int  # any number


class KillWorker(Message, tag=1):
    """Send SIGKILL if this is a worker whose exit was not reported, so that no reused pid is hit."""

    pid: int


ToZygote = ForkWorker | KillWorker


# From the zygote


class ZygoteReady(Message, tag=0):
    """The first message of a zygote, sent once."""

    pid: int


class WorkerForked(Message, tag=1):
    ticket: int
    pid: int


class ForkFailed(Message, tag=2):
    ticket: int
    reason: str


class WorkerExited(Message, tag=3):
    pid: int
    exit_code: int  # negative: the signal that ended it


FromZygote = ZygoteReady | WorkerForked | ForkFailed | WorkerExited


# From the daemon to a worker

Scalar = bytes | int | float | bool | None
NO_VARIABLES = b""
# What a script has read of clocks and chance: for each purpose of a call from Lua (worker/vm.py), the answers in order.
Read = Annotated[bytes, Meta(max_length=LONGEST_READ)] | int | float
Reads = dict[int, Annotated[list[Read], Meta(max_length=MOST_READS)]]
Files = list[tuple[str, bytes]]  # chunk name ("jobs/x.lua") and source, in the order in which they are executed


class InitWorker(Message, tag=0):
    """The first message to a worker, sent once."""

    ops: list[str]
    engine: dict[str, object]


class LoadVm(Message, tag=1):
    """Make a VM and compile these files in it; answered by VmLoaded."""

    vm: int
    files: Files
    memory_limit: int  # bytes
    variables: bytes = NO_VARIABLES  # what env_get shows, packed: a worker gets no other variable


class BeginRun(Message, tag=2):
    """Begin a run in a VM, or in one that is made of a template for it alone and needs no LoadVm and no DropVm."""

    run: int  # above 0
    vm: int
    procedure: str  # session.py: Procedure
    arguments: bytes  # a packed list
    cpu_limit_ms: int
    template: int = 0  # 0: none
    reads: Reads | None = None  # of a run that is replayed: it reads these again


class ResumeRun(Message, tag=3):
    """Answer the run's op of that number; ignored when the run no longer waits for it."""

    run: int
    number: int
    form: int  # a Form; a plain int because that is cheaper to encode, and is pushed into Lua as it is
    values: list[Scalar]


class CancelRun(Message, tag=4):
    run: int
    why: int  # a Why


class DropVm(Message, tag=5):
    """Close the VM once no run is left in it, or forget the template; not needed for a discarded VM."""

    vm: int


class PingWorker(Message, tag=6):
    number: int


class GrantLogCredit(Message, tag=7):
    lines: int  # that may be sent in addition


class KeepTemplate(Message, tag=8):
    """Keep the files that a BeginRun may make a VM of, and so many spare VMs.  Always sent on the main socket."""

    number: int  # as of a VM
    files: Files
    memory_limit: int
    spares: int
    variables: bytes = NO_VARIABLES


class EndBranch(Message, tag=9):
    """End a branch, whose time is up; dropped when it has ended."""

    run: int
    branch: int


ToWorker = (
    InitWorker
    | LoadVm
    | BeginRun
    | ResumeRun
    | CancelRun
    | DropVm
    | PingWorker
    | GrantLogCredit
    | KeepTemplate
    | EndBranch
)


# From a worker.  The worker may be under a script's control: all that the daemon reads is bounded here.

Count = Annotated[int, Meta(ge=0, le=MOST_CPU_MS)]
BranchNumber = Annotated[int, Meta(ge=1)]


class WorkerReady(Message, tag=0):
    """The first message of a worker, sent once."""

    rights: Annotated[list[str], Meta(max_length=MOST_RIGHTS)]  # what the worker has given up


class VmLoaded(Message, tag=1):
    vm: int
    reason: Annotated[str, Meta(max_length=REASON)] | None  # why it does not compile ("file:line: text")


class OpCall(Message, tag=2):
    """An op with scalar arguments."""

    run: int
    number: int  # 1, 2, ... in each run, for all its branches together
    name: str
    values: list[Scalar]
    branch: Count = 0  # that asks; 0: the run itself


class RunEnd(Message, tag=3):
    run: int
    ended: Ended
    reason: Annotated[bytes, Meta(max_length=REASON)]
    traceback: Annotated[bytes, Meta(max_length=TRACEBACK)]
    cpu_ms: Count
    result: Annotated[bytes, Meta(max_length=MOST_RESULT)] | None  # packed
    discarded: bool  # the VM was closed
    reads: Annotated[Reads, Meta(max_length=MOST_VMS)] = {}


class ScriptLog(Message, tag=4):
    """One log line; costs one credit.  Of the level "task": the task with this number begins, for who watches.

    Of the level "env": env_get was asked for this name, for who notes what a run uses.
    """

    run: int
    level: Literal["debug", "info", "warn", "error", "print", "task", "env"]
    text: Annotated[bytes, Meta(max_length=LOG_LINE + LOG_MARK)]


class Pong(Message, tag=5):
    number: int
    used: Count  # bytes of all VMs
    largest: Annotated[list[tuple[int, Count]], Meta(max_length=MOST_VMS)]  # VM and bytes


class RunStuck(Message, tag=6):
    """The run has not ended in time after its limit; NO_RUN: a VM is being closed for too long."""

    run: int
    why: Why
    cpu_ms: Count


class PackedOpCall(Message, tag=7):
    """An op with a table among its arguments."""

    run: int
    number: int
    name: str
    packed: bytes
    elements: Annotated[int, Meta(ge=0)]  # how many values it holds, in all tables together
    branch: Count = 0


class BranchBegan(Message, tag=8):
    """A branch has begun that has a timeout, or is in another branch; of others their first op tells."""

    run: int
    branch: BranchNumber
    parent: Count  # 0: the run itself
    timeout_ms: Count  # 0: none


class BranchEnded(Message, tag=9):
    """A branch has ended that has begun for the daemon."""

    run: int
    branch: BranchNumber
    number: Count  # of its last op, which may come later, by the other socket; 0: there was none


FromWorker = (
    WorkerReady | VmLoaded | OpCall | RunEnd | ScriptLog | Pong | RunStuck | PackedOpCall | BranchBegan | BranchEnded
)


class Ext(IntEnum):
    """msgpack extension types for values that only Lua has.  The payload is a text."""

    FOREIGN = 1  # a function, thread or userdata: its type's name
    CYCLE = 2  # a table inside itself
    DEEP = 3  # nested too deep
    NULL = 4  # the sentinel for JSON null: spyweb.null.NULL here
    EMPTY_ARRAY = 5  # the sentinel for an empty array: an empty list here


@final
class Foreign:
    """A Lua value that has no counterpart outside its VM."""

    __slots__ = ("kind", "name")

    def __init__(self, kind: Ext, name: str = "") -> None:
        self.kind = kind
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and (self.kind, self.name) == (other.kind, other.name)

    def __hash__(self) -> int:
        return hash((self.kind, self.name))


def _write_ext(value: object) -> msgspec.msgpack.Ext:
    """Encode a Foreign, which is not a Struct or dataclass because msgspec would encode those as maps."""
    if isinstance(value, Foreign):
        return msgspec.msgpack.Ext(int(value.kind), value.name.encode())
    raise TypeError(f"a {type(value).__name__} can't cross the wire")


_NULL, _EMPTY_ARRAY = int(Ext.NULL), int(Ext.EMPTY_ARRAY)
_LONGEST_NAME = 64  # bytes of what Lua calls a type


def _read_ext(code: int, data: memoryview) -> Null | list[object] | Foreign:
    """Decode an extension; each Foreign is made once, since a list may hold hundreds of thousands of them."""
    if code == _NULL:
        return NULL
    return [] if code == _EMPTY_ARRAY else _foreign(code, bytes(data[:_LONGEST_NAME]))


@lru_cache(64)
def _foreign(code: int, name: bytes) -> Foreign:
    return Foreign(Ext(code), name.decode("ascii", "replace"))


_encoder = msgspec.msgpack.Encoder(enc_hook=_write_ext)
_decoder = msgspec.msgpack.Decoder(ext_hook=_read_ext, strict=False)
_decoder_of_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])


def pack(values: object) -> bytes:
    return _encoder.encode(values)


def unpack(data: bytes | memoryview) -> list[object]:
    """Return the list in a packed string.  A table whose keys are 1..n is a list, any other a dict."""
    return _decoder.decode(data)  # type: ignore[no-any-return]


class Packed(NamedTuple):
    """A value that has not been unpacked yet."""

    raw: msgspec.Raw
    elements: int  # values in it, and in the few beside it


def unpack_outer(data: bytes, elements: int) -> list[object]:
    """Unpack a list, but leave values of more than BULK bytes Packed, for `unpack_by_items`."""
    return [Packed(raw, elements) if len(raw) > BULK else _decoder.decode(raw) for raw in _decoder_of_raws.decode(data)]


def unpack_by_items(packed: Packed) -> Generator[None, None, object]:
    """Unpack one value, of a list one item at a time, and yield in between so that other tasks get their turn."""
    try:
        items = _decoder_of_raws.decode(packed.raw)
    except msgspec.ValidationError:  # it is no list
        return _decoder.decode(packed.raw)
    unpacked: list[object] = []
    for item in items:
        yield
        unpacked.append(_decoder.decode(item))
    return unpacked


def frame(messages: Sequence[Message]) -> bytes:
    return framed(_encoder.encode(messages))


def small_frames(messages: Sequence[Message]) -> list[bytes]:
    """Return frames of at most SMALL_FRAME bytes; only a single message can exceed that."""
    whole = frame(messages)
    if len(whole) <= SMALL_FRAME or len(messages) == 1:
        return [whole]
    half = len(messages) // 2
    return small_frames(messages[:half]) + small_frames(messages[half:])


def pieces(message: Message) -> list[bytes]:
    """Return a message's frame in two pieces, so that a big one is not copied once more."""
    body = _encoder.encode([message])
    return [len(body).to_bytes(HEADER, "little"), body]


decode_from_worker = Decoder(list[FromWorker]).decode
decode_to_worker = Decoder(list[ToWorker]).decode
decode_from_zygote = Decoder(list[FromZygote]).decode
decode_to_zygote = Decoder(list[ToZygote]).decode
