"""stdin, stdout and stderr, where one of them was closed."""

from __future__ import annotations

import os
import sys

import pytest

from spyweb.daemon import streams


def test_a_closed_one_is_dev_null_also_for_the_programs_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = os.open("/dev/zero", os.O_RDONLY)
    os.close(closed)
    monkeypatch.setattr(streams, "STANDARD", (closed,))
    streams.open_standard_streams()
    try:
        assert os.path.samestat(os.fstat(closed), os.stat(os.devnull))
        assert os.get_inheritable(closed)
    finally:
        os.close(closed)


def test_one_that_is_open_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(streams, "STANDARD", (writing,))
    streams.open_standard_streams()
    os.write(writing, b"still a pipe")
    assert os.read(reading, 99) == b"still a pipe"
    os.close(reading)
    os.close(writing)


def test_what_python_made_none_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    streams.open_standard_streams()
    assert [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)] == [0, 1, 2]
