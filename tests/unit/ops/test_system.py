from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.errors import OpError
from spyweb.ops.notify_desktop import Desktop
from spyweb.ops.system import sleep
from tests.fakes.clock import FakeClock
from tests.fakes.ops import ask, make_call, make_world


@pytest.mark.parametrize(("ms", "seconds"), [(1500, 1.5), (b"250", 0.25), (0.5, 0.0005)])
async def test_sleep_waits_as_many_milliseconds(ms: object, seconds: float) -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        asleep = group.create_task(ask(make_call(make_world(clock=clock)), "sleep", ms))
        await clock.turn(seconds - 0.0001)
        assert not asleep.done()
        await clock.turn(0.0001)
        assert asleep.result() == []


@pytest.mark.parametrize("ms", [0, -5, -math.inf])
async def test_a_time_that_has_passed_is_no_wait(ms: float) -> None:
    assert await ask(make_call(), "sleep", ms) == []


async def test_forever_is_a_long_time_and_can_be_cancelled() -> None:
    clock = FakeClock()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await sleep(make_call(make_world(clock=clock)), math.inf)
    assert clock.pending == 0


async def test_a_time_that_is_no_number_raises() -> None:
    with pytest.raises(OpError, match="bad argument #1 to 'sleep'"):
        await ask(make_call(), "sleep", math.nan)


async def test_require_gives_a_modules_path_and_text(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "text.lua").write_bytes(b"return '\xff'")
    call = make_call(make_world(root=tmp_path))
    assert await ask(call, "_require", b"lib.text") == ["lib/text.lua", b"return '\xff'"]
    assert call.world.sources.dependencies(call.job, call.generation)["lib/text.lua"] is not None


async def test_a_missing_module_lists_where_it_was_looked_for(tmp_path: Path) -> None:
    call = make_call(make_world(root=tmp_path))
    assert await ask(call, "_require", b"lib.text") == [
        None,
        b"module 'lib.text' not found: tried jobs/prices/lib/text.lua, jobs/prices/lib/text/init.lua, lib/text.lua, "
        b"lib/text/init.lua",
    ]


async def test_a_file_comes_before_a_library_of_its_name(tmp_path: Path) -> None:
    call = make_call(make_world(root=tmp_path))
    (tmp_path / "state.lua").write_text("return 1")
    assert await ask(call, "_require", b"state") == ["state.lua", b"return 1"]


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
