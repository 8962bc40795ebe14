"""Record the resources of scripts in the scope `resources`; `spyweb drift` compares them with the files.

A row is written once the work is done, never before: after a crash in between, what was done is not on record, and
what is on record was done.  Scripts read the scope like any other, and nothing but this writes it.
"""

from __future__ import annotations

import hashlib
from asyncio import Future
from collections.abc import Mapping
from enum import StrEnum
from functools import partial

from msgspec import Struct, convert, structs

from spyweb.errors import StoreError
from spyweb.model import JobId, RunId, Value
from spyweb.ops.store import count_failure, raise_if_wanted
from spyweb.ops.world import Call
from spyweb.settings.units import DAY_MS
from spyweb.store.model.entries import Drop, Put, Replacement, scope_namespace

SCOPE = "resources"
NAMESPACE = scope_namespace(SCOPE)
LONGEST_LINE = 10_000  # bytes of a line that is kept; of a longer one only the file's checksum is compared
LONGEST_TARGET = 9_000  # bytes; a path has at most 32 steps
MODULES = ("file.copy", "file.line", "file.mkdir", "file.template", "file.remove", "exec.run", "cmd")
ABSENT_FOR_MS = 30 * DAY_MS  # a removal is expected; names that a script makes up anew each time must not add up
DIGEST = 16  # characters of the checksum that stands for the end of a target that is too long for a key


class Expected(StrEnum):
    """The state that a script has asked for."""

    FILE = "file"  # with this checksum
    FOLDER = "folder"
    ABSENT = "absent"
    LINE = "line"  # a file that has this line
    NO_LINE = "no line"  # no file that has this line
    MADE = "made"  # what a command creates is there
    COMMAND = "command"  # only the command itself could tell


class Kept(Struct, frozen=True, kw_only=True):
    """The state that one call has brought about, or found."""

    module: str  # as the script calls it: file.copy, exec.run, ...
    target: str  # a path below the job's folder, `shared/...` or absolute; of a command that creates nothing its text
    expected: Expected
    checksum: str = ""  # of the file's content; of a command's text
    mode: int | None = None  # None: any will do
    line: bytes | None = None


class Resource(Struct, frozen=True, kw_only=True):
    """A row of the scope: the resource, its job, and when it was last confirmed."""

    key: bytes
    job: JobId
    kept: Kept
    at_ms: int
    run: RunId
    changed: bool  # the call has changed something
    number: int  # counts the calls of a run: of two rows with one target the last call counts


class BadResource(Exception):
    """A row is not one that this version has written; the text says why."""


def key_of(job: JobId, kept: Kept, longest: int) -> bytes:
    """Return the key of a row, JOB:MODULE:TARGET; the end of a target that is too long is replaced by a checksum."""
    key = f"{job}:{kept.module}:{kept.target}".encode()
    if len(key) <= longest:
        return key
    digest = hashlib.sha256(key).hexdigest()[:DIGEST]
    room = max(0, longest - DIGEST - 1)
    return key[:room].decode("utf-8", "ignore").encode() + b"~" + digest.encode()


def prefix_of(job: JobId) -> bytes:
    return f"{job}:".encode()


class ResourceRow(Struct, kw_only=True):
    """A row as it is stored: a table."""

    checksum: bytes
    at: int | float  # seconds
    run: int
    call: int
    changed: bool = False
    expected: bytes
    target: bytes
    mode: bytes | None = None
    line: bytes | None = None


def to_value(kept: Kept, at_ms: int, run: RunId, number: int, *, changed: bool = True) -> Value:
    row = ResourceRow(
        checksum=kept.checksum.encode(),
        at=at_ms / 1000 if at_ms % 1000 else at_ms // 1000,
        run=int(run),
        call=number,
        changed=changed,
        expected=kept.expected.value.encode(),
        target=kept.target.encode(),
        mode=None if kept.mode is None else f"{kept.mode:04o}".encode(),
        line=kept.line,
    )
    return {name.encode(): value for name, value in structs.asdict(row).items() if value is not None}


def read_resource(key: bytes, value: Value) -> Resource:
    """Read a row.  Raises BadResource for what this version does not write."""
    try:
        job, module, _ = key.decode().split(":", 2)
    except ValueError:
        raise BadResource("its key is not JOB:MODULE:TARGET") from None
    if not isinstance(value, Mapping):
        raise BadResource("it is no table")
    try:
        row = convert({name.decode(): each for name, each in value.items() if isinstance(name, bytes)}, ResourceRow)
        kept = Kept(
            module=module,
            target=row.target.decode(),
            expected=Expected(row.expected.decode()),
            checksum=row.checksum.decode(),
            mode=None if row.mode is None else int(row.mode, 8),
            line=row.line,
        )
        if not 0 < len(row.target) <= LONGEST_TARGET:
            raise BadResource("its target is no path")
        at_ms = round(row.at * 1000)
    except (ValueError, OverflowError) as error:
        raise BadResource(str(error)) from error
    return Resource(
        key=key, job=JobId(job), kept=kept, at_ms=at_ms, run=RunId(row.run), changed=row.changed, number=row.call
    )


def job_of(key: bytes) -> JobId:
    """Return the job whose row this is, also of one that can't be read."""
    return JobId(key.partition(b":")[0].decode("utf-8", "replace"))


async def record(call: Call, kept: Kept | None, *, changed: bool) -> None:
    """Write the row of a call's resource, if it has one and its run is recorded.

    What has changed is on record before the script goes on.  What was as it should be needs not be waited for: its row
    is committed before the end of the run.
    """
    if kept is None or not call.is_recorded or call.is_dry:
        return
    call.tally.kept += 1
    now_ms = call.world.clock.now_ms()
    value = to_value(kept, now_ms, call.run, call.tally.kept, changed=changed)
    key = key_of(call.job, kept, call.world.state.max_key_bytes)
    is_removed = kept.expected is Expected.ABSENT
    expires_ms = now_ms + ABSENT_FOR_MS if is_removed else None
    put = Replacement(partial(Put, value, expires_ms))
    written = call.world.store.values.transform(NAMESPACE, key, put, origin=call.origin, is_awaited=changed)
    if is_removed:
        _forget_others(call, kept)
    if not changed:
        written.add_done_callback(partial(_note_failure, call, kept.module))
        return
    try:
        await written
    except StoreError as error:
        count_failure(call, kept.module, error)
        raise_if_wanted(call, kept.module, error)


def _forget_others(call: Call, removed: Kept) -> None:
    """Delete what other functions have left of a target that is removed: its row outlives them for a while only."""
    for module in MODULES:
        if module != removed.module:
            key = key_of(call.job, structs.replace(removed, module=module), call.world.state.max_key_bytes)
            drop = Replacement(Drop)
            deleted = call.world.store.values.transform(NAMESPACE, key, drop, origin=call.origin, is_awaited=False)
            deleted.add_done_callback(partial(_note_failure, call, removed.module))


def _note_failure(call: Call, function: str, written: Future[object]) -> None:
    error = None if written.cancelled() else written.exception()
    if isinstance(error, StoreError):
        count_failure(call, function, error)
