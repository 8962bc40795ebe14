"""What a process owes to its parent.  That it dies with it is tested on the workers themselves."""

from __future__ import annotations

import errno
import os

import pytest

from spyweb.confined.parent import stand_behind_parent


def test_a_process_that_may_not_give_way_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_levels: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "nice", refuse)

    assert stand_behind_parent(3) == "giving way to the daemon: not in force (Operation not permitted)"
