"""Which key of a policy each op falls under, and how its arguments are checked before it begins.

An op without a need has no effect outside its run.  One whose need has no check asks by itself: what it will reach is
known only there.

An op also says what it does in a dry run; one that says nothing is taken for one that writes, and is refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from spyweb.errors import OpError
from spyweb.ops.arguments import Mismatch, text_in
from spyweb.ops.notices import channel_of
from spyweb.ops.world import Call
from spyweb.store.model.entries import scope_namespace

Check = Callable[[Call, str, Sequence[object]], None]  # a call, its op, and the arguments.  Raises OpError


class OpEffect(StrEnum):
    """The effect of an op outside its run, which decides what becomes of it in a dry run."""

    WRITES = "writes"  # it is refused
    KEEPS = "keeps"  # a stored value: what it writes is kept for the dry run alone
    NONE = "none"  # it is carried out as always
    LOOKS = "looks"  # the op itself changes nothing there, and says what it would


class Need(Struct, frozen=True):
    key: str  # of `[permissions]`
    check: Check | None = None  # None: the op itself asks
    effect: OpEffect | None = None  # of every op with this need; None: each says its own


def refuse_in_dry_run(_call: Call, function: str, _arguments: Sequence[object]) -> None:
    """Raise OpError: this would change something."""
    raise OpError(f"not in a dry run: {function}")


def _switched(key: str) -> Need:
    def check(call: Call, function: str, _: Sequence[object]) -> None:
        call.permit(function, key)

    return Need(key, check)


def _state(*, write: bool) -> Need:
    def check(call: Call, function: str, arguments: Sequence[object]) -> None:
        namespace = _namespace(call, arguments)
        if namespace is not None:
            call.permit(function, "state", namespace, write)

    return Need("state", check, OpEffect.KEEPS if write else OpEffect.NONE)


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


def _people_or_desktop(call: Call, function: str, arguments: Sequence[object]) -> None:
    first = arguments[0] if arguments else None
    if not isinstance(first, Mapping):
        call.permit(function, "notify")
    elif channel := channel_of(first):  # else the op itself refuses the call
        call.permit(function, "notify", channel)


NET, EXEC, FILES = Need("net"), Need("exec"), Need("files")
DB, GLOBAL_STORE, NOTIFY = _switched("db"), _switched("global_store"), Need("notify", _people_or_desktop)
READ_STATE, WRITE_STATE = _state(write=False), _state(write=True)
ALL_SCOPES = Need("state", _all_scopes, OpEffect.NONE)
