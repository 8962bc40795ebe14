"""Show notifications on the desktop of the user who runs the daemon, if there is one.

The desktop's own command shows them, in a separate process.  Texts come from web pages: they are passed as arguments,
never as options, and markup in them is escaped.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping, Sequence
from html import escape

import structlog

from spyweb.words import cut

log = structlog.get_logger()

DEFAULT_TIMEOUT_MS = 5_000
LONGEST_TIMEOUT_MS = 86_400_000
PATIENCE = 10.0  # seconds for the command
AT_ONCE = 4  # commands; others wait
LONGEST_TITLE, LONGEST_BODY = 200, 4_000  # characters
DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS")
NO_TITLE = "spyweb"  # used when there is none, since the command needs one

Arguments = Callable[[str, str, int], Sequence[str]]  # of (title, body, timeout in ms)


class Desktop:
    """Shows notifications on the desktop; without a desktop it logs once that it shows none."""

    def __init__(self, environ: Mapping[str, str], platform: str = sys.platform) -> None:
        self._environ = environ
        self._platform = platform
        self._found: tuple[str, Arguments] | None = None
        self._free = asyncio.Semaphore(AT_ONCE)
        self._was_missed = False

    async def show(self, title: str, body: str, timeout_ms: int | None = None) -> str | None:
        """Show a notification; return why that failed, or None, also when there is no desktop."""
        missing = self.find_missing()
        if missing or not self._found:
            if not self._was_missed:
                self._was_missed = True
                log.warning("desktop notifications are not shown", reason=missing)
            return None
        program, arguments = self._found
        shown_ms = min(max(0, DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms), LONGEST_TIMEOUT_MS)
        texts = plain(title, LONGEST_TITLE) or NO_TITLE, plain(body, LONGEST_BODY)
        async with self._free:
            return await run_command([program, *arguments(*texts, shown_ms)])

    def find_missing(self) -> str:
        """Return the reason why notifications can't be shown; empty where they can."""
        if self._found:
            return ""
        is_mac = self._platform == "darwin"
        if not is_mac and not any(self._environ.get(name) for name in DESKTOPS):
            return f"there is no desktop here: none of {', '.join(DESKTOPS)} is set"
        name = "osascript" if is_mac else "notify-send"
        program = shutil.which(name, path=self._environ.get("PATH"))
        if program is None:
            return f"there is no {name} on the PATH"
        self._found = program, mac_arguments if is_mac else linux_arguments
        return ""


def linux_arguments(title: str, body: str, timeout_ms: int) -> Sequence[str]:
    """Return the arguments for notify-send, which undoes backslashes in a body that desktops read as markup."""
    text = escape(body, quote=False).replace("\\", "\\\\")
    return ["--app-name=spyweb", f"--expire-time={timeout_ms}", "--", title, text]


def mac_arguments(title: str, body: str, timeout_ms: int) -> Sequence[str]:
    show = "display notification (item 2 of argv) with title (item 1 of argv)"
    return ["-e", "on run argv", "-e", show, "-e", "end run", "--", title, body]


def plain(text: str, longest: int) -> str:
    """Return the text in a form that a process accepts: no NUL, no half of a surrogate pair, not too long."""
    whole = text.replace("\0", "").encode("utf-8", "replace").decode()
    return cut(whole, longest)


async def run_command(command: Sequence[str]) -> str | None:
    """Run a command; return why it failed, or None."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
    except OSError as error:
        return f"{command[0]}: {error.strerror or error}"
    try:
        async with asyncio.timeout(PATIENCE):
            _, said = await process.communicate()
    except TimeoutError:
        return f"{command[0]} has not ended within {PATIENCE:.0f} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        output = " ".join(said.decode("utf-8", "replace").split())[:200]
        return f"{command[0]} failed ({process.returncode}){f': {output}' if output else ''}"
    return None
