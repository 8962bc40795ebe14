"""The process that uses Apprise: `python -m spyweb.alerts.sender.worker.main`.  See wire.py.

It takes requests from stdin, answers on stdout as it has answers, and ends when stdin closes or the daemon dies.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from spyweb.alerts.sender.wire import LONGEST_LINE, HelperAnswer, decode_request, encode_line
from spyweb.alerts.sender.worker.limits import MIB, limit_process
from spyweb.confined.parent import close_to_others, die_with_parent, leave_signals_to_parent

if TYPE_CHECKING:
    from spyweb.alerts.sender.worker.service import AppriseServices

_saying = threading.Lock()


def serve(services: AppriseServices) -> None:
    """Take requests until stdin closes, each in a thread; the daemon limits their number."""
    while line := sys.stdin.buffer.readline(LONGEST_LINE):
        threading.Thread(target=answer, args=(services, line), daemon=True).start()


def answer(services: AppriseServices, line: bytes) -> None:
    ask = decode_request(line)
    try:
        found = services.answer(ask)
    except Exception as error:  # noqa: BLE001 - a fault in one service must not end the process
        found = HelperAnswer(
            id=ask.id, ok=False, reason=f"internal error of the service in Apprise ({type(error).__name__})"
        )
    with _saying:
        sys.stdout.buffer.write(encode_line(found) + b"\n")
        sys.stdout.buffer.flush()


def main() -> None:
    die_with_parent()
    leave_signals_to_parent()
    close_to_others()  # others of this user must not read addresses in its memory
    limit_process(192 * MIB, cpu_s=120)
    from spyweb.alerts.sender.worker.service import AppriseServices  # only now: it takes what was just limited

    serve(AppriseServices())
    os._exit(0)  # without waiting for threads that hang


if __name__ == "__main__":
    main()
