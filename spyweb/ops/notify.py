"""notify: a notification on the desktop, at once."""

from __future__ import annotations

from spyweb.ops.arguments import Number, Text
from spyweb.ops.notify_desktop import LONGEST_TIMEOUT_MS
from spyweb.ops.op import op
from spyweb.ops.system import FAMILY as FAMILY
from spyweb.ops.world import Call


@op
async def notify(call: Call, title: Text, body: Text, timeout_ms: Number | None = None) -> None:
    """Show a notification on the desktop, for 5,000 ms unless told otherwise.

    Where there is no desktop nothing is shown and the daemon's log says so once.  Never raises: a failure is logged.
    """
    shown_ms = None if timeout_ms is None else whole(timeout_ms)
    reason = await call.world.desktop.show(title.decode("utf-8", "replace"), body.decode("utf-8", "replace"), shown_ms)
    if reason:
        call.log("warn", f"notify: not shown: {reason}".encode("utf-8", "replace"))


def whole(ms: float) -> int:
    """Infinity and NaN, which no timer knows, are the longest time."""
    return int(ms) if abs(ms) < LONGEST_TIMEOUT_MS else LONGEST_TIMEOUT_MS
