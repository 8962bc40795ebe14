"""The daemon as a process: its arguments, its loop, its exit code."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from asyncio import AbstractEventLoop
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path

from spyweb.daemon.options import Options
from spyweb.daemon.serve import serve
from spyweb.errors import ConfigError, ExitCode, Refused, SpywebError, legible
from spyweb.logs.journal import is_journal, with_priority
from spyweb.logs.queued import queued_standard_streams


def main(argv: Sequence[str]) -> int:
    with queued_standard_streams():
        return _run(argv)


def _run(argv: Sequence[str]) -> int:
    try:
        _loop_run(serve(read_options(argv)))
    except ConfigError as error:
        for problem in error.problems:
            _complain(problem)
        return ExitCode.USAGE
    except SpywebError as error:
        _complain(error)
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _complain(reason: object) -> None:
    line = f"spyweb: {reason}"
    sys.stderr.write(f"{with_priority(line, 'error') if is_journal(sys.stderr, os.environ) else line}\n")


def read_options(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m spyweb.daemon")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--flags", type=json.loads, default={})
    given = parser.parse_args(argv)
    flags = dict(given.flags)
    _refuse_unwatchable(given.root.absolute())
    return Options(root=given.root.absolute(), repair=bool(flags.pop("repair", False)), flags=flags)


def _refuse_unwatchable(root: Path) -> None:
    """watchfiles takes text only."""
    shown = legible(root)
    if shown != str(root):
        raise Refused(f"{shown}: a daemon's folder needs a path that is UTF-8")


def _loop_run(story: Coroutine[object, object, None]) -> None:
    runner = asyncio.Runner(loop_factory=_new_loop)
    try:
        runner.run(story)
    finally:
        # Where no thread is left in which to wait for the others, the interpreter does it itself.
        with suppress(RuntimeError):
            runner.close()


def _new_loop() -> AbstractEventLoop:
    """uvloop's where it exists: half the CPU of asyncio's own loop for each op."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
