from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest

from spyweb.errors import OpError
from spyweb.ops import catalog
from spyweb.ops.notify_desktop import Desktop
from tests.fakes.ops import ask, make_call, make_world

assert "notify" in catalog.names()


@dataclass
class Screen(Desktop):
    reason: str | None = None
    shown: list[tuple[str, str, int | None]] = field(default_factory=list)

    async def show(self, title: str, body: str, timeout_ms: int | None = None) -> str | None:
        self.shown.append((title, body, timeout_ms))
        return self.reason


async def test_notify_shows_texts_and_gives_nothing() -> None:
    screen = Screen()
    call = make_call(replace(make_world(), desktop=screen))

    assert await ask(call, "notify", b"3 new", "Tea: 1 €".encode()) == []
    assert await ask(call, "notify", b"\xff", b"b", 2500.7) == []
    assert screen.shown == [("3 new", "Tea: 1 €", None), ("�", "b", 2500)]


@pytest.mark.parametrize("ms", [math.inf, -math.inf, math.nan, 1e300])
async def test_notify_takes_any_number(ms: float) -> None:
    screen = Screen()
    assert await ask(make_call(replace(make_world(), desktop=screen)), "notify", b"t", b"b", ms) == []
    assert screen.shown[0][2] == 86_400_000


async def test_what_could_not_be_shown_is_logged_and_never_raises() -> None:
    lines: list[tuple[str, bytes]] = []
    world = replace(make_world(), desktop=Screen(reason="notify-send failed (1)"))
    call = make_call(world, log=lambda level, text: lines.append((level, text)))

    assert await ask(call, "notify", b"t", b"b") == []
    assert lines == [("warn", b"notify: not shown: notify-send failed (1)")]


async def test_notify_refuses_what_is_no_text() -> None:
    with pytest.raises(OpError, match="bad argument #2 to 'notify'"):
        await ask(make_call(), "notify", b"t", True)
