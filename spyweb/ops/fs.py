"""The ops fs_read, fs_read_binary, fs_append and fs_overwrite: a job's own files, and the shared ones.

The work is done in threads.  ops/files/names.py decides which names are allowed; every refusal and every error raises
in the script; only a missing file is nil.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from spyweb.errors import OpError
from spyweb.files import Forbidden
from spyweb.ops.arguments import Text
from spyweb.ops.files.names import BINARY_KINDS, TEXT_KINDS, FilePlace, check_names, complaint, places_of
from spyweb.ops.op import FILES, OpEffect, OpFamily, op
from spyweb.ops.world import Call
from spyweb.permissions.policy import JOB, SHARED

FAMILY = OpFamily(
    name="files",
    errors="A name that leads out of the folder, another ending, a file larger than the job's memory, a full disk "
    "raise.",
)

T = TypeVar("T")


@op(needs=FILES, effect=OpEffect.NONE)
async def fs_read(call: Call, filename: Text) -> bytes | None:
    """Return the text of a file in the job's folder, else in `shared/`; nil when neither exists."""
    return await _read(call, "fs_read", filename, TEXT_KINDS)


@op(needs=FILES, effect=OpEffect.NONE)
async def fs_read_binary(call: Call, filename: Text) -> bytes | None:
    """Return the bytes of a file, as `fs_read`, also of images, fonts, PDF and ZIP files."""
    return await _read(call, "fs_read_binary", filename, BINARY_KINDS)


@op(needs=FILES)
async def fs_append(call: Call, filename: Text, content: Text) -> None:
    """Append to a text file; a missing one is created.  Before it exceeds 10 MB it is renamed, and a new one begins."""
    await _in_thread(
        "fs_append", filename, lambda: call.world.files.append(_place(call, "fs_append", filename), content)
    )


@op(needs=FILES)
async def fs_overwrite(call: Call, filename: Text, content: Text) -> None:
    """Replace the content of a text file, atomically."""
    await _in_thread(
        "fs_overwrite", filename, lambda: call.world.files.overwrite(_place(call, "fs_overwrite", filename), content)
    )


async def _read(call: Call, function: str, name: bytes, kinds: frozenset[str]) -> bytes | None:
    def read() -> bytes | None:
        own, shared = places_of(call.world.files.top, call.folder, name, kinds)
        _permit(call, function, own)
        found = _read_if_there(call, own)
        if found is not None or call.policy.folder(SHARED) is not None:
            return found
        found = _read_if_there(call, shared)
        if found is not None:
            _permit(call, function, shared)
        return found

    return await _in_thread(function, name, read)


def _read_if_there(call: Call, place: FilePlace) -> bytes | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return call.world.files.read(place, call.memory_limit, by_only_name=True)
    return None


def _place(call: Call, function: str, name: bytes) -> FilePlace:
    """Return the place that is to be written to, which may be.  Raises Forbidden, OpError."""
    place, _ = places_of(call.world.files.top, call.folder, name, TEXT_KINDS)
    check_names(place.steps[:-1])
    _permit(call, function, place)
    return place


def _permit(call: Call, function: str, place: FilePlace) -> None:
    """Ask for the folder that a name leads to.  Raises OpError."""
    call.permit(function, "folder", SHARED if place.base == SHARED else JOB)


async def _in_thread(function: str, name: bytes, work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except (Forbidden, OSError) as error:
        raise OpError(complaint(function, name, error)) from error
