from __future__ import annotations

import asyncio
import threading

import pytest

from spyweb.daemon import process
from spyweb.daemon.options import Options


def test_a_daemon_that_can_start_no_thread_any_more_ends_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def serve(_options: Options) -> None:
        await asyncio.to_thread(lambda: None)
        monkeypatch.setattr(threading.Thread, "start", refuse)

    monkeypatch.setattr(process, "serve", serve)

    assert process.main(["--root", "."]) == 0
