"""The messages about one command, over its leash: the socket between the daemon and the nanny of that command.

A frame is a 4-byte little-endian length and a msgpack value.  The daemon sends one StartCommand; the nanny answers with
CommandTaken before it starts the command, and with one CommandEnded or CommandRefused when the command and everything
that it has started have ended, and ends.  The daemon may send STOP before that.  When the daemon closes its end, or
dies, the nanny ends everything at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from spyweb.confined.frames import framed

STOP = b"T"  # end the command: SIGTERM first
GRACE_S = 5.0  # from SIGTERM to SIGKILL
STREAMS = 3  # stdin, stdout and stderr, which come with the leash
LARGEST = 8 << 20  # bytes of a frame; the kernel takes no more arguments than that either


class FileVersion(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a file's content, as far as its inode shows."""

    device: int
    inode: int
    size: int
    changed_ns: int


class StartCommand(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Execute a program."""

    program: bytes  # its path
    version: FileVersion  # it must still be this file
    arguments: Sequence[bytes]  # the first is the name that the program sees
    environment: Mapping[bytes, bytes]
    workdir: bytes
    memory: int = 0  # bytes, of each process or, in a cgroup, of all together; 0: no limit
    cpu_s: int = 0  # CPU time of each process; 0: no limit
    processes: int = 0  # 0: no limit
    cgroup: str = ""  # the folder to make for it; empty: none


class CommandTaken(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A nanny has a command; it starts none whose daemon does not hear this any more."""

    nanny: int  # its pid
    folder: bytes  # for temporary files of the command, in the environment of all that it starts


class CommandEnded(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A command, and all that it had started, has ended."""

    exit_code: int  # negative: the signal that ended it
    was_stopped: bool  # before it ended by itself


class CommandRefused(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A command could not be started."""

    reason: str


Outcome = CommandEnded | CommandRefused
FromNanny = CommandTaken | Outcome

encode = msgspec.msgpack.Encoder().encode
decode_start = msgspec.msgpack.Decoder(StartCommand).decode
_from_nanny: msgspec.msgpack.Decoder[FromNanny] = msgspec.msgpack.Decoder(FromNanny)


def decode_from_nanny(body: memoryview) -> list[FromNanny]:
    return [_from_nanny.decode(body)]


def frame(message: msgspec.Struct) -> bytes:
    return framed(encode(message))


def shown(path: bytes) -> str:
    """Return a path as text for people, with bytes that are not UTF-8 as \\xNN."""
    return path.decode("utf-8", "backslashreplace")


def version_of(status: os.stat_result) -> FileVersion:
    return FileVersion(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
