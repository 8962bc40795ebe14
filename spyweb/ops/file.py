"""The ops of `file`: files and folders are brought into a state, and left alone where they are in it already.

ops/files/files.py does the work, in threads.  A name is below the job's folder, below `shared/`, or absolute and below
a root that the job's permissions list.  What a script must not reach raises; what the disk says is nil and a message.
file.template is Lua (lua/worker/library/file.lua).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar, cast

from msgspec import Struct, structs

from spyweb.errors import ExtractionError, OpError
from spyweb.files import Forbidden
from spyweb.ops.arguments import Mismatch, Table, Text, needed_text_in, read_flag, read_text, text_in, value_in
from spyweb.ops.files.files import LARGEST_TEXT, WOULD_WRITE, FileOutcome
from spyweb.ops.files.names import FilePlace, check_names, complaint, find_place
from spyweb.ops.op import FILES, OpEffect, OpFamily, op
from spyweb.ops.resources import LONGEST_LINE, Expected, Kept, record
from spyweb.ops.rules.values import shown
from spyweb.ops.world import Call
from spyweb.permissions.policy import SHARED

FAMILY = OpFamily(
    name="kept files",
    errors="A path that is not permitted, a name that spyweb itself loads and a wrong type raise; everything else, a "
    "missing file or a full disk, is nil and a message.",
)

T = TypeVar("T")
Answer = tuple[dict[str, object] | None, str | None]

OUTCOME = "(given: table): FileOutcome? outcome, string? message"
ATTEMPTS = 3  # to change a line of a file that others write meanwhile
IGNORED = frozenset({"delegate_to"})  # fields of sloth-runner: everything is done here


class Arguments(Struct, frozen=True):
    """Reads the fields of the table that a function is called with.  Raises Mismatch."""

    call: Call
    function: str
    fields: Mapping[object, object]
    known: Collection[str]

    def __post_init__(self) -> None:
        for name in self.fields:
            text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
            if text not in self.known and text not in IGNORED:
                raise Mismatch(f"there is no field '{shown(text.encode())}', but {', '.join(sorted(self.known))}")

    def text(self, name: str) -> bytes:
        return needed_text_in(self.fields, name)

    def check(self) -> bool:
        """Return whether nothing is to be changed."""
        return value_in(self.fields, "check", read_flag) or self.call.is_dry

    def mode(self) -> int | None:
        return value_in(self.fields, "mode", _mode)

    def place(self, name: str, *, write: bool) -> FilePlace:
        """Return the place that a path names.  Raises OpError for one that the job must not reach."""
        path, call = self.text(name), self.call
        try:
            place = find_place(
                path,
                call.world.files.top,
                call.folder,
                root_of=partial(call.root_of, self.function),
                permit=partial(call.permit, self.function, "folder"),
            )
            if write:
                check_names(place.steps)
            return place
        except Forbidden as error:
            raise OpError(complaint(self.function, path, error)) from error


def _mode(value: object) -> int:
    """Read a mode as people write it, "0644" or 644: the digits are octal."""
    text = read_text(value)
    if not re.fullmatch(rb"0{0,5}[0-7]{1,3}", text):
        raise Mismatch(f"octal digits up to 777 expected, got {shown(text)}")
    return int(text, 8)


@op(name="file.copy", needs=FILES, effect=OpEffect.LOOKS, types=OUTCOME)
async def copy(call: Call, given: Table) -> Answer:
    """Make the file `dest` equal to the file `src`; without `mode` a new file has that of `src`."""
    arguments = Arguments(call, "file.copy", given, {"src", "dest", "mode", "check"})
    source, place = arguments.place("src", write=False), arguments.place("dest", write=True)
    mode, check = arguments.mode(), arguments.check()
    if call.is_dry and place_name(call, source) in call.tally.imagined:
        return _imagined(call, "file.copy", place)
    return await _outcome(
        arguments, place, Expected.FILE, lambda: call.world.files.copy(source, place, mode, check=check)
    )


@op(name="file.line", needs=FILES, effect=OpEffect.LOOKS, types=OUTCOME)
async def line(call: Call, given: Table) -> Answer:
    """Ensure that the file `path` has a `line`, or lacks it (`state = "absent"`).

    With `regexp` the last matching line is replaced, or all matching lines are removed.
    """
    arguments = Arguments(call, "file.line", given, {"path", "line", "regexp", "state", "check"})
    place, check = arguments.place("path", write=True), arguments.check()
    state, regexp = text_in(given, "state") or b"present", text_in(given, "regexp")
    if state not in (b"present", b"absent"):
        raise Mismatch(f'field \'state\': "present" or "absent" expected, got {shown(state)}')
    wanted = (text_in(given, "line") or b"") if state == b"absent" and regexp else arguments.text("line")
    if b"\n" in wanted:
        raise Mismatch("field 'line': one line expected")
    expected = Expected.NO_LINE if state == b"absent" else Expected.LINE
    told = wanted if len(wanted) <= LONGEST_LINE and not (expected is Expected.NO_LINE and regexp) else None
    kept = Kept(module="file.line", target=place_name(call, place), expected=expected, line=told)
    try:
        for _ in range(ATTEMPTS):
            old, checksum = await asyncio.to_thread(_read_if_there, call, place)
            found = await _found_lines(call, regexp, wanted, old)
            new = _edited(old, None if state == b"absent" else wanted, found, has_regexp=regexp is not None)
            if new == old:
                unchanged = FileOutcome(False, "unchanged", checksum)
                return await _kept(call, place, kept, unchanged, check=check), None
            outcome = await asyncio.to_thread(call.world.files.put, place, new, None, check=check, expected=old)
            if outcome is not None:
                return await _kept(call, place, kept, outcome, check=check), None
        return None, f"file.line: '{shown(arguments.text('path'))}': it is written by others all the time"
    except (Forbidden, OSError, ExtractionError) as error:
        if call.is_dry and isinstance(error, FileNotFoundError) and _is_imagined(call, place):
            return _imagined(call, "file.line", place)
        return None, complaint("file.line", arguments.text("path"), error)


def _read_if_there(call: Call, place: FilePlace) -> tuple[bytes, str]:
    """Return the content of a file, and its checksum."""
    try:
        content = call.world.files.read(place, LARGEST_TEXT)
    except FileNotFoundError:
        content = b""
    return content, hashlib.sha256(content).hexdigest()


async def _found_lines(call: Call, regexp: bytes | None, wanted: bytes, text: bytes) -> list[int]:
    """Return the numbers of the lines that are meant; a search may take for ever: another process does it."""
    lines = text.split(b"\n")
    if regexp is not None:
        found = await call.world.extractor.find_lines(call.job, regexp, text)
    else:
        found = [number for number, each in enumerate(lines) if each.removesuffix(b"\r") == wanted]
    return [number for number in found if lines[number] or number < len(lines) - 1]


def _edited(text: bytes, wanted: bytes | None, found: list[int], *, has_regexp: bool) -> bytes:
    """Return the text with the line in the place of the last one that was found, or without any of these (None)."""
    lines = text.split(b"\n")
    if wanted is None:
        gone = set(found)
        return b"\n".join(each for number, each in enumerate(lines) if number not in gone)
    if found:
        end = b"\r" if lines[found[-1]].endswith(b"\r") else b""
        lines[found[-1]] = wanted + end
        return b"\n".join(lines)
    if has_regexp and any(each.removesuffix(b"\r") == wanted for each in lines):
        return text
    return b"\n".join([*lines[:-1], *([lines[-1]] if lines[-1] else []), wanted, b""])


@op(name="file.mkdir", needs=FILES, effect=OpEffect.LOOKS, types=OUTCOME)
async def mkdir(call: Call, given: Table) -> Answer:
    """Create the folder `path`, with its parents; without `mode` a new one has 0755."""
    arguments = Arguments(call, "file.mkdir", given, {"path", "mode", "check"})
    place, mode, check = arguments.place("path", write=True), arguments.mode(), arguments.check()
    return await _outcome(arguments, place, Expected.FOLDER, lambda: call.world.files.mkdir(place, mode, check=check))


@op(name="file.remove", needs=FILES, effect=OpEffect.LOOKS, types=OUTCOME)
async def remove(call: Call, given: Table) -> Answer:
    """Remove the file, link or empty folder `path`."""
    arguments = Arguments(call, "file.remove", given, {"path", "check"})
    place, check = arguments.place("path", write=True), arguments.check()
    return await _outcome(arguments, place, Expected.ABSENT, lambda: call.world.files.remove(place, check=check))


@op(name="file.stat", needs=FILES, effect=OpEffect.NONE, types="(given: table): FileStatus? status, string? message")
async def stat(call: Call, given: Table) -> Answer:
    """Return the status of `path`; a link is not followed."""
    arguments = Arguments(call, "file.stat", given, {"path"})
    place = arguments.place("path", write=False)
    return await _in_thread(call, "file.stat", arguments.text("path"), lambda: call.world.files.stat(place))


@op(name="_template", needs=FILES, effect=OpEffect.NONE)
async def read_template(call: Call, function: Text, src: Text) -> tuple[bytes | None, str | None]:
    """Read a template; nil and a message where that can't be done."""
    name = "file.template" if function == b"file.template" else "template.render"
    place = Arguments(call, name, {b"src": src}, {"src"}).place("src", write=False)
    return await _in_thread(call, name, src, lambda: call.world.files.read(place, min(LARGEST_TEXT, call.memory_limit)))


@op(name="_template_file", shown_as="file.template", needs=FILES, effect=OpEffect.LOOKS)
async def put_template(call: Call, given: Table, content: Text) -> Answer:
    """Make a file have the content that a template gives."""
    arguments = Arguments(call, "file.template", given, {"src", "text", "dest", "vars", "mode", "check"})
    place, mode, check = arguments.place("dest", write=True), arguments.mode(), arguments.check()
    put = partial(call.world.files.put, place, content, mode, check=check)
    return await _outcome(arguments, place, Expected.FILE, cast("Callable[[], FileOutcome]", put))


async def _outcome(
    arguments: Arguments, place: FilePlace, expected: Expected, work: Callable[[], FileOutcome]
) -> Answer:
    """Do the work in a thread, and then record the resource."""
    call, function, name = arguments.call, arguments.function, "path" if b"path" in arguments.fields else "dest"
    try:
        async with call.world.files.turns:
            outcome = await asyncio.to_thread(work)
    except (Forbidden, OSError) as error:
        if call.is_dry and isinstance(error, FileNotFoundError) and _is_imagined(call, place):
            return _imagined(call, function, place)
        return None, complaint(function, arguments.text(name), error)
    kept = Kept(module=function, target=place_name(call, place), expected=expected, mode=arguments.mode())
    return await _kept(call, place, kept, outcome, check=arguments.check()), None


async def _kept(call: Call, place: FilePlace, kept: Kept, outcome: FileOutcome, *, check: bool) -> dict[str, object]:
    """Record the resource; in a dry run report it only."""
    if call.is_dry and outcome.changed:
        _tell(call, kept.module, place, outcome.message)
        if kept.expected is not Expected.ABSENT:
            call.tally.imagined.add(place_name(call, place))
    if not check:
        await record(call, structs.replace(kept, checksum=outcome.checksum or ""), changed=outcome.changed)
    told: dict[str, object] = {"changed": outcome.changed, "message": outcome.message}
    return told | ({"checksum": outcome.checksum} if outcome.checksum else {})


def _is_imagined(call: Call, place: FilePlace) -> bool:
    """Return whether a folder above is one that this dry run would have made."""
    name = place_name(call, place)
    return any(name.startswith(f"{folder}/") for folder in call.tally.imagined)


def _imagined(call: Call, function: str, place: FilePlace) -> Answer:
    """Answer for what would lie in a folder, or be made of a file, that this dry run would have made."""
    _tell(call, function, place, WOULD_WRITE)
    call.tally.imagined.add(place_name(call, place))
    return {"changed": True, "message": WOULD_WRITE}, None


def _tell(call: Call, function: str, place: FilePlace, message: str) -> None:
    call.log("info", f"dry run: {function}: '{place_name(call, place)}': {message}".encode())


def place_name(call: Call, place: FilePlace) -> str:
    """Return a place as a script names it, and in one way only."""
    below = "/".join(place.steps)
    if place.base == SHARED and place.top == call.world.files.top:
        return f"{SHARED}/{below}"
    return below if place.base else f"{place.top.rstrip('/')}/{below}"


async def _in_thread(call: Call, function: str, name: bytes, work: Callable[[], T]) -> tuple[T | None, str | None]:
    try:
        async with call.world.files.turns:
            return await asyncio.to_thread(work), None
    except (Forbidden, OSError) as error:
        return None, complaint(function, name, error)
