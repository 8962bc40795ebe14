from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from spyweb.daemon import process
from spyweb.daemon.options import Options
from spyweb.errors import Refused


def test_a_daemon_that_can_start_no_thread_any_more_ends_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def serve(_options: Options) -> None:
        await asyncio.to_thread(lambda: None)
        monkeypatch.setattr(threading.Thread, "start", refuse)

    monkeypatch.setattr(process, "serve", serve)

    assert process.main(["--root", "."]) == 0


@pytest.mark.parametrize(("is_journal", "mark"), [(True, "<3>"), (False, "")])
def test_a_start_that_is_refused_is_an_error_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_journal: bool, mark: str
) -> None:
    async def refuse(_options: Options) -> None:
        raise Refused("no")

    monkeypatch.setattr(process, "serve", refuse)
    with (tmp_path / "errors").open("w+") as errors:
        found = os.fstat(errors.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}" if is_journal else "1:2")
        monkeypatch.setattr(sys, "stderr", errors)
        assert process.main(["--root", "."]) == 2
        assert (tmp_path / "errors").read_text() == f"{mark}spyweb: no\n"
