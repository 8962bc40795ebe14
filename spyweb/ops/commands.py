"""The ops exec.run and cmd: run a command of the system, with everything it starts, and return its output.

What a job may run its policy says; programs/ runs it outside the daemon.  A text goes through the shell.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

from msgspec import Struct

from spyweb import limits
from spyweb.errors import CommandError, OpError
from spyweb.model import MIB
from spyweb.ops.arguments import (
    ArgumentReader,
    Mismatch,
    Table,
    read_flag,
    read_table,
    read_text,
    text_in,
    texts_in,
    type_name,
    value_in,
)
from spyweb.ops.op import EXEC, OpEffect, OpFamily, op
from spyweb.ops.resources import LONGEST_TARGET, Expected, Kept, record
from spyweb.ops.world import Call
from spyweb.programs.runner import SHELL, CommandResult, Program, base_environment, find_program
from spyweb.programs.running import Command
from spyweb.programs.wire import StartCommand, shown
from spyweb.settings.units import parse_duration

FAMILY = OpFamily(
    name="commands",
    errors="A missing or non-executable program and a timeout return nil and a text; what the job's policy does "
    "not permit raises.",
)

RUN_TIMEOUT_MS = 300_000
KEPT = 10 * MIB  # of stdout, and of stderr, ...
KEPT_SHARE = 4  # ... but no more than this part of the VM's memory
SHOWN = 1_000  # bytes of stderr in an error
IGNORED = "delegate_to"  # of sloth-runner: every command runs here
OPTIONS = ("command", "workdir", "env", "timeout", "stdin", "strict", "creates", "unless", "check", "shell", IGNORED)
BASH, SHELLS = b"bash", {b"bash": b"bash", b"sh": SHELL}

Outcome = tuple[dict[str, object] | None, str | None]
Words = bytes | list[bytes]  # of a command: a text for the shell, or a program and its arguments


class ExecOptions(Struct, frozen=True, kw_only=True):
    workdir: bytes
    env: Mapping[bytes, bytes]
    timeout_ms: int
    stdin: bytes
    is_strict: bool
    creates: bytes | None
    unless: Words | None
    is_check: bool  # change nothing, say what would be done
    shell: bytes | None  # for text; None: bash where there is one


def words_from(value: object) -> Words:
    """Read a command.  Raises Mismatch."""
    if isinstance(value, bytes | int | float) and not isinstance(value, bool):
        return _plain(read_text(value))
    if not isinstance(value, list | dict):
        raise Mismatch(f"a command expected, a string or an array of strings, got {type_name(value)}")
    table = read_table(value)
    if not table or table.keys() != set(range(1, len(table) + 1)):
        raise Mismatch("an array of strings expected, the first of them the program")
    return [_plain(read_text(table[number])) for number in range(1, len(table) + 1)]


def _plain(text: bytes) -> bytes:
    if b"\0" in text:
        raise Mismatch("a command can't hold a zero byte")
    return text


def options_from(value: object) -> ExecOptions:
    """Read the options of a command.  Raises Mismatch."""
    table = read_table(value)
    for key in table:
        if not isinstance(key, bytes) or key.decode("latin-1") not in OPTIONS:
            raise Mismatch(f"there is no option {shown(key) if isinstance(key, bytes) else type_name(key)!r}")
    return ExecOptions(
        workdir=_plain(text_in(table, "workdir") or b""),
        env=_environment(texts_in(table, "env") or {}),
        timeout_ms=value_in(table, "timeout", _timeout) or RUN_TIMEOUT_MS,
        stdin=text_in(table, "stdin") or b"",
        is_strict=value_in(table, "strict", read_flag) or False,
        creates=value_in(table, "creates", lambda path: _plain(read_text(path))),
        unless=value_in(table, "unless", words_from),
        is_check=value_in(table, "check", read_flag) or False,
        shell=value_in(table, "shell", _shell),
    )


def _environment(given: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    for name, text in given.items():
        if not name or b"=" in name or b"\0" in name + text:
            raise Mismatch(f"field 'env': {shown(name[:SHOWN])!r} can't be a variable")
    return given


def _shell(value: object) -> bytes:
    if not isinstance(value, bytes) or value not in SHELLS:
        raise Mismatch('"bash" or "sh" expected')
    return SHELLS[value]


def _timeout(value: object) -> int:
    if not isinstance(value, int | float | bytes) or isinstance(value, bool):
        raise Mismatch(f"a duration expected, got {type_name(value)}")
    if isinstance(value, bytes) and len(value) > limits.NUMBER_TEXT:
        raise Mismatch("a duration expected")
    try:
        milliseconds = parse_duration(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    except ValueError as error:
        raise Mismatch(str(error)) from None
    if milliseconds <= 0:
        raise Mismatch("a duration above 0 expected")
    return milliseconds


CommandWords = Annotated[Words, ArgumentReader("value", "a command", words_from)]
Options = Annotated[ExecOptions, ArgumentReader("table", "table", options_from)]


@op(
    name="exec.run",
    needs=EXEC,
    effect=OpEffect.LOOKS,
    types="(command: string|string[], options?: ExecOptions): ExecResult? result, string? message",
)
async def run(call: Call, command: CommandWords, options: Options | None = None) -> Outcome:
    """Run a command and wait for its end; return its output and exit code, or nil and a text.

    A text goes through `bash -c`, or `sh -c`; an array is a program and its arguments.  All processes that the command
    has started end with it, and with the run: SIGTERM, and SIGKILL after five seconds.
    """
    return await _run(call, "exec.run", command, options or options_from({}))


@op(needs=EXEC, effect=OpEffect.LOOKS, types="(options: ExecOptions): ExecResult? result, string? message")
async def cmd(call: Call, options: Table) -> Outcome:
    """Run `options.command`, as `exec.run` does."""
    return await _run(call, "cmd", words_from(options.get(b"command")), options_from(options))


async def _run(call: Call, function: str, words: Words, options: ExecOptions) -> Outcome:
    asked = [words] if options.unless is None else [words, options.unless]
    names = [os.fsdecode(name) for name in options.env]
    try:
        if not call.policy.may_exec:  # before the job can learn which programs there are
            call.permit(function, "exec", _asked(words, b""), names)
        workdir, made, programs = await asyncio.to_thread(_look, call, options, asked)
        for each, program in zip(asked, programs, strict=True):
            call.permit(function, "exec", _asked(each, program.path), names)
        return await _perform(call, function, words, options, (workdir, made, programs)), None
    except CommandError as error:
        return None, str(error)


async def _perform(
    call: Call, function: str, words: Words, options: ExecOptions, found: tuple[bytes, bool, list[Program]]
) -> dict[str, object]:
    """Run a permitted command, unless its purpose is fulfilled, or in a dry run."""
    workdir, made, programs = found
    kept = None if options.is_check else _kept(call, function, words, options, workdir)
    if options.creates is not None and made:
        await record(call, kept, changed=False)
        return _skipped(f"{shown(options.creates)} is there")
    if call.is_dry or options.is_check:  # not even `unless` is run, which is a command as well
        would_run = f"would run `{_text_of(words)}`"
        if call.is_dry:
            call.log("info", f"dry run: {function}: {would_run}".encode("utf-8", "replace"))
        return {**_skipped(would_run), "changed": True}
    if options.unless is not None:
        tested = await _execute(call, options.unless, programs[1], options, workdir)
        if tested.exit_code == 0:
            await record(call, kept, changed=False)
            return _skipped(f"`{_text_of(options.unless)}` succeeded")
    result = await _execute(call, words, programs[0], options, workdir)
    if kept is not None and result.exit_code == 0 and await asyncio.to_thread(_is_made, options, workdir) is not False:
        await record(call, kept, changed=True)
    return _result(call, function, result, options)


def _kept(call: Call, function: str, words: Words, options: ExecOptions, workdir: bytes) -> Kept | None:
    """Return the resource of a command; None for one that is run every time."""
    if options.creates is not None:
        path = os.path.normpath(os.path.join(workdir, options.creates))
        own = os.fsencode(call.world.files.root / call.folder) + b"/"
        target = os.fsdecode(path.removeprefix(own) if path.startswith(own) else path)
        if not target.isprintable() or len(target.encode()) > LONGEST_TARGET:  # no key could name it
            return None
        return Kept(module=function, target=target, expected=Expected.MADE)
    if options.unless is not None:
        command = words if isinstance(words, bytes) else b"\0".join(words)
        return Kept(
            module=function,
            target=" ".join(_text_of(words).split()) or "-",
            expected=Expected.COMMAND,
            checksum=hashlib.sha256(command).hexdigest(),
        )
    return None


def _is_made(options: ExecOptions, workdir: bytes) -> bool | None:
    """Return whether the file that the command creates exists; None where none is named."""
    return None if options.creates is None else os.path.lexists(os.path.join(workdir, options.creates))


def _look(call: Call, options: ExecOptions, asked: Sequence[Words]) -> tuple[bytes, bool, list[Program]]:
    """Return the working directory, whether the file that the command creates exists, and the program of each command.

    The folder is the job's own, made at first need, or another from there.  Waits for the disk.  Raises CommandError.
    """
    own = os.fsencode(call.world.files.root / call.folder)
    if not options.workdir and not (call.is_dry or options.is_check):
        try:
            os.makedirs(own, exist_ok=True)
        except OSError as error:
            raise CommandError(f"its workdir {shown(own)}: {error.strerror}") from error
    workdir = os.path.normpath(os.path.join(own, options.workdir))
    return (workdir, bool(_is_made(options, workdir)), [_find(each, options.shell, workdir) for each in asked])


def _find(words: Words, shell: bytes | None, workdir: bytes) -> Program:
    if not isinstance(words, bytes):
        return find_program(words[0], workdir)
    if shell is None:
        with suppress(CommandError):  # there is no bash
            return find_program(BASH, workdir)
    return find_program(shell or SHELL, workdir)


def _asked(words: Words, program: bytes) -> str | list[str]:
    """Return the question for the policy: a text for the shell, or a program by its path, and its arguments."""
    if isinstance(words, bytes):
        return os.fsdecode(words)
    return [os.fsdecode(word) for word in (program or words[0], *words[1:])]


async def _execute(call: Call, words: Words, program: Program, options: ExecOptions, workdir: bytes) -> CommandResult:
    start = StartCommand(
        program=program.path,
        version=program.version,
        arguments=[program.path, b"-c", words] if isinstance(words, bytes) else words,
        environment=base_environment() | dict(options.env),
        workdir=workdir,
    )
    command = Command(
        start=start,
        timeout_s=options.timeout_ms / 1000,
        stdin=options.stdin,
        kept=min(KEPT, call.memory_limit // KEPT_SHARE),
        tell=lambda stream, line: call.log("info", b"%s: %s" % (_LABELS[stream], line)),
    )
    return await call.world.commands.run(command)


_LABELS = {"stdout": b"exec.run", "stderr": b"exec.run, stderr"}


def _result(call: Call, function: str, result: CommandResult, options: ExecOptions) -> dict[str, object]:
    dropped = [
        f"{dropped} bytes of {stream} were not kept"
        for stream, dropped in (("stdout", result.stdout_dropped), ("stderr", result.stderr_dropped))
        if dropped
    ]
    untold = [f"{result.lines_untold} lines came too fast for the log"] if result.lines_untold else []
    for remark in (*dropped, *untold):
        call.log("warn", f"{function}: {remark}".encode())
    if options.is_strict and result.exit_code != 0:
        raise OpError(f"{function}: exit code {result.exit_code}: {shown(result.stderr[-SHOWN:]).strip()}")
    return {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exit_code": result.exit_code,
        "success": result.exit_code == 0,
        "took_ms": result.took_ms,
        "changed": True,
        "message": "; ".join(dropped) or f"exit code {result.exit_code}",
    }


def _skipped(why: str) -> dict[str, object]:
    none = {"stdout": b"", "stderr": b"", "exit_code": 0, "success": True, "took_ms": 0}
    return {**none, "changed": False, "message": why}


def _text_of(words: Words) -> str:
    return shown(words if isinstance(words, bytes) else b" ".join(words))[:SHOWN]
