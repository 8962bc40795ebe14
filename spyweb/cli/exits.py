"""Map errors to exit codes."""

from __future__ import annotations

from spyweb.errors import ExitCode, FetchError, OpError, PoolError, ScriptError, SpywebError

__all__ = ["ExitCode", "code_of"]

_FAILURES = (ScriptError, OpError, FetchError, PoolError)


def code_of(error: SpywebError) -> ExitCode:
    return ExitCode.FAILED if isinstance(error, _FAILURES) else ExitCode.USAGE
