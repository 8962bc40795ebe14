"""Which key of a policy each op falls under, and how its arguments are checked before it begins.

An op without a need has no effect outside its run.  One whose need has no check asks by itself: what it will reach is
known only there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spyweb.ops.arguments import Mismatch, text_in
from spyweb.ops.world import Call
from spyweb.store.values_protocol import scope_namespace

Check = Callable[[Call, str, Sequence[object]], None]  # a call, its op, and the arguments.  Raises OpError


@dataclass(frozen=True, slots=True)
class Need:
    key: str  # of `[permissions]`
    check: Check | None = None  # None: the op itself asks


def _switched(key: str) -> Need:
    def check(call: Call, function: str, _: Sequence[object]) -> None:
        call.permit(function, key)

    return Need(key, check)


def _state(*, write: bool) -> Need:
    def check(call: Call, function: str, arguments: Sequence[object]) -> None:
        namespace = _namespace(call, arguments)
        if namespace is not None:
            call.permit(function, "state", namespace, write)

    return Need("state", check)


def _namespace(call: Call, arguments: Sequence[object]) -> str | None:
    """Return the namespace that a call is about; None for a scope that the op itself refuses."""
    first = arguments[0] if arguments else None
    if not isinstance(first, Mapping):
        return call.state_namespace
    try:
        scope = text_in(first, "scope")
        return None if scope is None else scope_namespace(scope.decode())
    except (Mismatch, UnicodeDecodeError):
        return None


def _all_scopes(call: Call, function: str, _: Sequence[object]) -> None:
    call.permit(function, "all_scopes")


NET, EXEC, FILES = Need("net"), Need("exec"), Need("files")
DB, GLOBAL_STORE, NOTIFY = _switched("db"), _switched("global_store"), _switched("notify")
READ_STATE, WRITE_STATE = _state(write=False), _state(write=True)
ALL_SCOPES = Need("state", _all_scopes)
