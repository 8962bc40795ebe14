"""How a command ends: every exit code, and which error means which."""

from __future__ import annotations

from enum import IntEnum

from spyweb.errors import FetchError, OpError, PoolError, ScriptError, SpywebError


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # a job, test or check failed
    USAGE = 2  # usage, lock, port or permission
    INTERRUPTED = 130  # Ctrl-C, as shells count it


_FAILURES = (ScriptError, OpError, FetchError, PoolError)


def code_of(error: SpywebError) -> ExitCode:
    return ExitCode.FAILED if isinstance(error, _FAILURES) else ExitCode.USAGE
