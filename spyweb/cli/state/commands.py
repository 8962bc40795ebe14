"""The table of the commands about stored values."""

from __future__ import annotations

from collections.abc import Callable

from spyweb.cli.exits import ExitCode
from spyweb.cli.state.change import clear, delete, move, rollback, set_entry
from spyweb.cli.state.locks import locks
from spyweb.cli.state.look import get, history, list_entries, show, stats
from spyweb.cli.state.rekey import rekey
from spyweb.cli.state.transfer import export, import_file
from spyweb.cli.state.watch import watch

STATE: dict[str, Callable[..., ExitCode | None]] = {
    "list": list_entries,
    "show": show,
    "get": get,
    "set": set_entry,
    "delete": delete,
    "clear": clear,
    "stats": stats,
    "locks": locks,
    "history": history,
    "rollback": rollback,
    "export": export,
    "import": import_file,
    "move": move,
    "watch": watch,
    "rekey": rekey,
}
