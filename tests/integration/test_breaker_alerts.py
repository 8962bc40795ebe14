"""README's circuit breaker with README's alerts: what somebody is told while the address is down for an hour.

The script runs in a real VM, by the scheduler, on a clock that the test turns; what is told is what lies in the outbox.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from spyweb.alerts.texts import decode_facts, title_of
from spyweb.lua import wire
from spyweb.lua.endings import from_end
from spyweb.lua.session import Host, Request
from spyweb.lua.wire import Form
from spyweb.lua.worker.vm import Bytecode, compile_lua_files
from spyweb.model import Ending, Every, Outcome
from spyweb.settings.load import load_settings
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.harness import harness, make_job
from tests.fakes.inline_worker import InlineWorker
from tests.fakes.pool import FakePool
from tests.fakes.repository import read
from tests.fakes.signs import make_watcher

README = read("README.md")
BREAKER = next(text for text in re.findall(r"```lua\n(.*?)```", README, re.DOTALL) if "MAX_FAILURES" in text)
ALERTS = next(text for text in re.findall(r"```toml\n(.*?)```", README, re.DOTALL) if "[alerts]" in text)
TIME = "local os = { time = function() return echo('now') end } "  # on the script's own first line
OPS = ("echo", "store_get", "store_set", "http_get", "_require")
DOWN_FROM_MS, DOWN_UNTIL_MS = 600_000, 4_200_000


class BreakerPool(FakePool):
    """Runs the breaker in a VM; its store, its clock and the address that is down for an hour are here."""

    def __init__(self, clock: FakeClock, bytecode: Bytecode) -> None:
        super().__init__()
        self._clock = clock
        self._bytecode = bytecode
        self._stored: dict[object, bytes] = {}
        self.outcomes: Counter[Outcome] = Counter()

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        worker = InlineWorker(self._bytecode, OPS)
        worker.begin(TIME + BREAKER)
        while worker.end is None:
            (call,) = worker.open.values()
            worker.open.clear()
            answer = wire.pack(self._answer(call.name, *call.values))
            worker.say(wire.ResumeRun(call.run, call.number, int(Form.PACKED), [answer]))
        ending = from_end(worker.end)
        self.outcomes[ending.outcome] += 1
        return ending

    def _answer(self, op: str, name: wire.Scalar, value: wire.Scalar = None) -> list[object]:
        match op:
            case "echo":
                return [self._clock.now_ms() // 1000]
            case "store_get":
                return [self._stored.get(name)]
            case "store_set":
                self._stored[name] = str(value).encode()
                return []
        assert op == "http_get"
        is_down = DOWN_FROM_MS <= self._clock.now_ms() - START_MS < DOWN_UNTIL_MS
        return [None, {"kind": "connect", "error": "connection refused"}] if is_down else [{"status": 200}]


@pytest.mark.parametrize(
    ("more", "reminders"),
    [
        ("", []),
        (
            'remind_every = "20m"\n',
            ["8 failures, for 21 m 10 s now", "12 failures, for 41 m 15 s now", "16 failures, for 1 h 1 m now"],
        ),
    ],
)
async def test_it_is_told_once_as_down_and_as_well_again_only_once_it_is_up(
    tmp_path: Path, more: str, reminders: list[str]
) -> None:
    (tmp_path / "config.toml").write_text(ALERTS + more)
    alerts = load_settings(tmp_path, environ={}, flags={}).alerts
    clock = FakeClock()
    pool = BreakerPool(clock, compile_lua_files())
    async with harness(clock=clock, pool=pool) as h:
        watcher = make_watcher(h, lambda: alerts)
        await watcher.load()
        planning = h.tasks.create_task(watcher.keep_up())
        await h.settle(make_job("check_api", schedule=Every(period_ms=30_000), alerts=alerts.policy))
        await clock.turn(2 * 3600)
        planning.cancel()
        unsent = await h.store.outbox.unsent(None, 100)
    told = [decode_facts(each.payload) for each in reversed(unsent)]
    assert [title_of(facts) for facts in told] == [
        "#1 check_api is down: 3 failures",
        *(f"#1 check_api is down: {words}" for words in reminders),
        "#1 check_api recovered after 1 h 2 m",
    ]
    down_ms, up_ms = (told[place].at_ms - START_MS for place in (0, -1))
    assert DOWN_FROM_MS < down_ms < DOWN_FROM_MS + 120_000
    assert DOWN_UNTIL_MS <= up_ms < DOWN_UNTIL_MS + 330_000, "the cooldown of the breaker has to end first"
    assert pool.outcomes[Outcome.SKIPPED] > 100
