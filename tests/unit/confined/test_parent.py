"""What a process owes to its parent.  That it dies with it is tested on the workers themselves."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from spyweb.confined import parent
from spyweb.confined.parent import adopt_orphans, close_to_others, die_with_parent, stand_behind_parent


def test_a_process_that_may_not_give_way_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_levels: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "nice", refuse)

    assert stand_behind_parent(3) == "lower priority: not in force (Operation not permitted)"


def test_what_the_system_can_not_do_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "_prctl", None)
    die_with_parent()
    assert (adopt_orphans(), close_to_others()) == (False, False)
    asked: list[tuple[int, ...]] = []

    def prctl(*words: int) -> int:
        asked.append(words)
        return 0

    monkeypatch.setattr(parent, "_prctl", prctl)
    die_with_parent(signal.SIGUSR1)
    assert (adopt_orphans(), close_to_others()) == (True, True)
    assert asked == [(1, signal.SIGUSR1, 0, 0, 0), (36, 1, 0, 0, 0), (4, 0, 0, 0, 0)]
