"""Run the daemon as a process: its arguments, its event loop, its threads, its exit code."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from asyncio import AbstractEventLoop
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Barrier

from spyweb.daemon.serve import Options, serve
from spyweb.daemon.startup import put_hang_up_off
from spyweb.errors import ConfigError, ExitCode, Refused, SpywebError, StoreFenced, legible
from spyweb.logs.output import is_journal, with_priority
from spyweb.logs.queued import queued_standard_streams

JOINS_ANEW = "SPYWEB_JOINS_ANEW"  # in the environment of a process that was a node before
THREADS = min(32, (os.cpu_count() or 1) + 4)  # as many as Python would start on demand


def main(argv: Sequence[str]) -> int:
    with ExitStack() as afterwards, queued_standard_streams():
        try:
            run(read_options(argv))
        except StoreFenced as error:
            show(f"this node is over, and joins anew: {error}")
            afterwards.callback(become_anew)
        except SpywebError as error:
            for reason in error.problems if isinstance(error, ConfigError) else [error]:
                show(reason)
            return ExitCode.USAGE
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
    return ExitCode.OK


def show(reason: object) -> None:
    line = f"spyweb: {reason}"
    sys.stderr.write(f"{with_priority(line, 'error') if is_journal(sys.stderr, os.environ) else line}\n")


def become_anew() -> None:
    """Replace this process by one with the same arguments: nothing in memory of a node that is over may be used."""
    os.environ[JOINS_ANEW] = "1"
    put_hang_up_off()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def read_options(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m spyweb.daemon")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--flags", type=json.loads, default={})
    given = parser.parse_args(argv)
    root, flags = given.root.absolute(), dict(given.flags)
    if legible(root) != str(root):  # watchfiles takes text only
        raise Refused(f"{legible(root)}: a daemon's folder needs a path that is UTF-8")
    repair, verbose = bool(flags.pop("repair", False)), bool(flags.pop("verbose", False))
    joins_anew = os.environ.pop(JOINS_ANEW, "") == "1"
    return Options(root=root, repair=repair, verbose=verbose, joins_anew=joins_anew, flags=flags)


def run(options: Options) -> None:
    async def main() -> None:
        await start_threads()
        await serve(options)

    runner = asyncio.Runner(loop_factory=new_loop)
    try:
        runner.run(main())
    finally:
        # When no thread is left in which to wait for the others, the interpreter waits itself.
        with suppress(RuntimeError):
            runner.close()


def new_loop() -> AbstractEventLoop:
    """Make an event loop of uvloop if it is installed: it needs less CPU time than asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def start_threads() -> None:
    """Start all threads of the loop's executor at once, before there is anything to lose.

    Later the system may have no thread left.  An executor that needs another one then raises a RuntimeError, which
    would end the whole daemon.
    """
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(THREADS, thread_name_prefix="spyweb")
    loop.set_default_executor(executor)
    all_started = Barrier(THREADS)  # no thread is idle before all have started, so each call starts one
    try:
        for waiting in [executor.submit(all_started.wait) for _ in range(THREADS)]:
            waiting.result()
    except RuntimeError as error:
        all_started.abort()
        raise Refused(f"the system lets the daemon have fewer than {THREADS} threads") from error
    # uvloop has its own threads for addresses, even where they are numbers.  libuv starts them when they are first
    # needed, and aborts the process when it can't.
    await loop.getaddrinfo("127.0.0.1", 0)
