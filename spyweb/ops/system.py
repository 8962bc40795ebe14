"""The ops notify and sleep, and the daemon's part of require."""

from __future__ import annotations

import math

from spyweb.errors import OpError
from spyweb.ops import notices
from spyweb.ops.arguments import Number, Text
from spyweb.ops.notify_desktop import LONGEST_TIMEOUT_MS
from spyweb.ops.op import NOTIFY, OpEffect, OpFamily, op
from spyweb.ops.positional import KeyOrTable
from spyweb.ops.sources import candidates_of
from spyweb.ops.world import Call

FAMILY = OpFamily(name="time and messages", errors="Only a wrong type of argument raises.")

LONGEST_SLEEP_MS = 366 * 86_400_000  # longer than any run; timers can't take infinity


@op(
    needs=NOTIFY,
    types="(title: string, body?: string, timeout_ms?: number)",
    overloads=("fun(message: Message): boolean? ok, string what",),
)
async def notify(
    call: Call, title: KeyOrTable, body: Text = b"", timeout_ms: Number | None = None
) -> tuple[object, ...]:
    """Show a notification on the desktop, for 5,000 ms by default.

    Where there is no desktop nothing is shown and the daemon's log says so once.  Never raises: a failure is logged.
    With a table `{channel, title, body?, level?, key?}` it sends a message by a notification channel: it returns true
    and the message's fate, or nil and why it can't be sent.
    """
    if not isinstance(title, bytes):
        return tuple(await notices.tell(call, title))
    if timeout_ms is not None:  # timers can't take infinity and NaN
        timeout_ms = int(timeout_ms) if abs(timeout_ms) < LONGEST_TIMEOUT_MS else LONGEST_TIMEOUT_MS
    reason = await call.world.desktop.show(
        title.decode("utf-8", "replace"), body.decode("utf-8", "replace"), timeout_ms
    )
    if reason:
        call.log("warn", f"notify: not shown: {reason}".encode("utf-8", "replace"))
    return ()


@op(effect=OpEffect.NONE)
async def sleep(call: Call, ms: Number) -> None:
    """Wait so many milliseconds; other runs go on.  A negative time does not wait."""
    if math.isnan(ms):
        raise OpError("bad argument #1 to 'sleep' (a time in milliseconds expected, got nan)")
    await call.world.clock.sleep(min(max(ms, 0), LONGEST_SLEEP_MS) / 1000)


@op(name="_require", effect=OpEffect.NONE)
async def require(call: Call, name: Text) -> tuple[str | None, bytes | None]:
    """The path and the text of a module; nil and what to tell when there is no file, which a library needs none of."""
    module = await call.world.sources.find(call.job, call.generation, call.folder, name)
    if module is not None:
        return module.path, module.source
    tried = ", ".join(map(str, candidates_of(call.folder, name)))
    return None, f"module '{name.decode()}' not found: tried {tried}".encode()
