"""The pool with real workers, forked by a real zygote."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio import Future, Task
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
import structlog
from msgspec import structs
from msgspec.structs import replace

from spyweb.clock import Clock, RealClock
from spyweb.errors import OpError
from spyweb.lua import spawner, wire
from spyweb.lua.pool import Pool, open_pool
from spyweb.lua.session import Code, EngineInfo, Lineage, Request
from spyweb.lua.wire import Why
from spyweb.model import MIB, Ending, Failure, JobId, Outcome, RunId

A_C_LOOP = "string.find(('a'):rep(30000), '.-.-.-b')"  # no hook and no signal ends it
OPS = ["echo", "refuse", "wait", "later"]

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")


class TestHost:
    __test__ = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.hooks: list[str] = []  # what a cycle is told to call
        self.waiting: asyncio.Queue[Future[Sequence[object]]] = asyncio.Queue()

    def end_branch(self, lineage: Lineage) -> None: ...

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Sequence[object]]:
        future: Future[Sequence[object]] = asyncio.get_running_loop().create_future()
        match name:
            case "_hook":
                future.set_result([self.hooks.pop(0)] if self.hooks else [])
            case "wait":
                self.waiting.put_nowait(future)
            case "refuse":
                future.set_exception(OpError("no, thank you"))
            case "later":
                return self._later(arguments)
            case _:
                future.set_result(arguments)
        return future

    async def _later(self, arguments: Sequence[object]) -> Sequence[object]:
        await asyncio.sleep(0)
        return arguments

    def log(self, level: str, text: bytes) -> None:
        self.lines.append(text)


@dataclass
class PoolHarness:
    pool: Pool
    host: TestHost = field(default_factory=TestHost)
    numbers: count[int] = field(default_factory=lambda: count(1))

    async def run(self, source: str, job: str = "a", *, cpu: int = 10_000, timeout: int = 20_000) -> Ending:
        return await self.pool.run(self.request(source, job, cpu=cpu, timeout=timeout), self.host)

    def start(self, source: str, job: str = "a") -> Task[Ending]:
        return asyncio.create_task(self.run(source, job))

    async def run_fresh(self, code: Code) -> Ending:
        request = structs.replace(self.request(""), code=code, run=self.pool.new_id())
        return await self.pool.run(request, self.host, is_fresh=True)

    def request(self, source: str, job: str = "a", *, cpu: int = 10_000, timeout: int = 20_000) -> Request:
        code = Code(job=JobId(job), generation=1, chunk=f"jobs/{job}.lua", source=source.encode())
        arguments = ({"job": job}, False)
        run = RunId(next(self.numbers))
        return Request(run=run, code=code, timeout_ms=timeout, cpu_limit_ms=cpu, arguments=arguments)

    async def begun(self) -> None:
        """A run has come as far as its `wait()`."""
        await self.host.waiting.get()

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self.pool.stats().workers]


@pytest.fixture
async def harness() -> AsyncIterator[PoolHarness]:
    async with open_pool(clock=RealClock(), workers=2, init=EngineInfo(ops=OPS)) as pool:
        yield PoolHarness(pool)


async def until(condition: Callable[[], bool]) -> None:
    """Real processes have no virtual clock; the test's own timeout ends this."""
    while not condition():  # noqa: ASYNC110 - a process has no event to wait for
        await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """A zombie counts."""
    return Path(f"/proc/{pid}").exists()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_values_cross_to_the_host_and_back(harness: PoolHarness) -> None:
    ending = await harness.run(
        r"""
        local a, b, c = echo("\255\0", 2^53, {1, {x = "y"}})
        assert(a == "\255\0" and b == 2^53 and c[1] == 1 and c[2].x == "y")
        local d = later(12)
        local ok, message = pcall(refuse)
        print("said", message)
        return {ok = ok, d = d}
        """
    )

    assert (ending.outcome, ending.reason) == (Outcome.SUCCESS, "")
    assert ending.result == {b"ok": False, b"d": 12} or ending.result == {"ok": False, "d": 12}
    assert len(harness.host.lines) == 1
    assert b"no, thank you" in harness.host.lines[0]


async def test_many_jobs_run_side_by_side(harness: PoolHarness) -> None:
    source = "for i = 1, 20 do assert(echo(i) == i) end return ({...})[1].job"
    jobs = [f"job{number}" for number in range(60)]

    endings = await asyncio.gather(*(harness.run(source, job) for job in jobs))

    assert [ending.result for ending in endings] == [job.encode() for job in jobs]
    assert sorted(worker.vms for worker in harness.pool.stats().workers) == [30, 30]


async def test_hooks_after_a_cancel_never_get_the_answers_of_before() -> None:
    source = """
        function run() local i = 0 while true do i = i + 1 assert(echo(i) == i) end end
        function on_finally() for i = 1, 5 do print((echo("after" .. i))) end end
        """
    async with open_pool(clock=RealClock(), workers=2, init=EngineInfo(ops=OPS)) as pool:
        for _ in range(60):  # without the numbers of ops one in ten went wrong
            harness = PoolHarness(pool)
            running = harness.start(source)
            await asyncio.sleep(0.004)
            pool.cancel(RunId(1), Why.CANCELLED)
            await running
            assert harness.host.lines in ([b"after%d" % number for number in range(1, 6)], [])


@pytest.mark.slow
async def test_what_cannot_be_stopped_ends_in_time_and_costs_only_itself(harness: PoolHarness) -> None:
    other = harness.start("wait() return 'fine'", "b")
    second = harness.start("wait() return 'fine'", "c")
    await harness.begun()
    await harness.begun()
    ending = await harness.run(A_C_LOOP, timeout=200)

    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.TIMEOUT)
    assert ending.cpu_ms > 0
    assert not other.done()
    assert list(harness.pool.stats().quarantined) == ["a"]
    await until(lambda: harness.pool.stats().deaths == 1)
    outcomes = []
    for task in (other, second):
        harness.pool.cancel(RunId(1), Why.CANCELLED)
        harness.pool.cancel(RunId(2), Why.CANCELLED)
        outcomes.append((await task).outcome)
    assert sorted(outcomes) == [Outcome.FAILED, Outcome.LOST]  # cancelled by this test; on the killed worker
    assert (await harness.run("return 2", "b")).result == 2


@pytest.mark.slow
async def test_a_killed_worker_costs_the_runs_in_it_and_is_replaced(harness: PoolHarness) -> None:
    stepping = harness.start("while true do end")
    waiting = [harness.start("wait()", job) for job in ("b", "c")]
    await harness.begun()
    await harness.begun()
    victim = next(worker.pid for worker in harness.pool.stats().workers if worker.runs == 2)
    await asyncio.sleep(0.1)  # the spinner is being stepped by now

    os.kill(victim, signal.SIGKILL)
    lost = await stepping

    assert (lost.outcome, lost.guilty) == (Outcome.LOST, True)
    assert "SIGKILL" in lost.reason
    assert lost.cpu_ms > 0
    await until(lambda: any(task.done() for task in waiting))
    innocent = next(task.result() for task in waiting if task.done())
    assert (innocent.outcome, innocent.guilty) == (Outcome.LOST, False)
    assert list(harness.pool.stats().quarantined) == ["a"]
    await until(lambda: 0 not in harness.pids)
    assert len(harness.pids) == 2
    assert not is_alive(victim)


@pytest.mark.slow
async def test_a_worker_that_has_stopped_is_killed(harness: PoolHarness) -> None:
    running = harness.start("wait()")
    await harness.begun()
    frozen = next(worker.pid for worker in harness.pool.stats().workers if worker.runs)

    os.kill(frozen, signal.SIGSTOP)
    ending = await running

    assert ending.outcome is Outcome.LOST
    assert "no ping" in ending.reason
    assert not is_alive(frozen)


async def test_when_the_zygote_dies_another_one_is_started(harness: PoolHarness) -> None:
    running = harness.start("wait()")
    await harness.begun()
    pids = harness.pids
    zygote = parent_of(pids[0])

    os.kill(zygote, signal.SIGKILL)
    ending = await running

    assert (ending.outcome, ending.guilty) == (Outcome.LOST, False)
    assert (await harness.run("return 4")).result == 4
    assert not set(harness.pids) & set(pids)


async def test_a_zygote_that_hangs_is_replaced(harness: PoolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawner, "FORK_LIMIT", 0.3)
    running = harness.start("wait()")
    await harness.begun()
    pids = harness.pids
    zygote = parent_of(pids[0])

    os.kill(zygote, signal.SIGSTOP)
    os.kill(next(worker.pid for worker in harness.pool.stats().workers if not worker.runs), signal.SIGKILL)
    ending = await running

    assert (ending.outcome, ending.guilty) == (Outcome.LOST, False)
    assert (await harness.run("return 4")).result == 4
    assert not set(harness.pids) & {*pids, zygote}
    await until(lambda: not is_alive(zygote))


async def test_a_zygote_that_dies_before_a_worker_is_up_does_not_end_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[spawner.ZygoteClient] = []
    launch = spawner.launch_zygote

    def launch_and_kill_the_first(clock: Clock, timezone: str) -> spawner.ZygoteClient:
        launched.append(launch(clock, timezone))
        if len(launched) == 1:
            launched[0]._child.kill()
        return launched[-1]

    monkeypatch.setattr(spawner, "launch_zygote", launch_and_kill_the_first)
    async with open_pool(clock=RealClock(), workers=2, init=EngineInfo(ops=OPS)) as pool:
        assert (await PoolHarness(pool).run("return 4")).result == 4


async def test_a_fresh_vm_knows_nothing_of_earlier_ones_and_a_spare_one_is_as_fresh(harness: PoolHarness) -> None:
    code = harness.request("echo(1) seen = (seen or 0) + 1 return seen").code
    harness.pool.keep_spares(code, 2)
    endings = [await harness.run_fresh(code) for _ in range(5)]
    endings += await asyncio.gather(*(harness.run_fresh(code) for _ in range(60)))

    assert [ending.result for ending in endings] == [1] * 65
    assert [worker.vms for worker in harness.pool.stats().workers] == [0, 0]


async def test_a_fresh_vm_collects_its_garbage_and_keeps_to_its_memory_limit(harness: PoolHarness) -> None:
    code = replace(harness.request("").code, memory_limit=4 * MIB)
    sources = {
        "garbage": "for i = 1, 2000 do local x = ('x'):rep(50000 + i) end return collectgarbage('count') < 4096",
        "greed": "local t = {} for i = 1, 1e6 do t[i] = ('x'):rep(1000 + i % 7) .. i end",
    }
    endings = {name: await harness.run_fresh(replace(code, source=source.encode())) for name, source in sources.items()}

    assert endings["garbage"].result is True
    assert endings["greed"].failure is Failure.MEMORY


async def test_a_pool_leaves_nothing_behind() -> None:
    before = descriptors()
    async with open_pool(clock=RealClock(), workers=3, init=EngineInfo(ops=OPS)) as pool:
        harness = PoolHarness(pool)
        await harness.run("return 1")
        running = harness.start("wait()", "b")
        await harness.begun()
        pids = harness.pids
        assert all(is_alive(pid) for pid in pids)

    assert (await running).outcome is Outcome.STOPPED
    assert not any(is_alive(pid) for pid in pids)
    assert descriptors() == before
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_pool_can_be_closed_while_its_workers_are_starting() -> None:
    before = descriptors()
    async with open_pool(clock=RealClock(), workers=2, init=EngineInfo(ops=OPS)) as pool:
        harness = PoolHarness(pool)
        for pid in harness.pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: pool.stats().deaths == 2)

    assert descriptors() == before


async def test_many_deaths_leave_nothing_behind(harness: PoolHarness) -> None:
    await asyncio.sleep(0.01)
    before = descriptors()
    for _ in range(5):
        await until(lambda: 0 not in harness.pids)
        deaths, pids = harness.pool.stats().deaths, harness.pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        both = deaths + len(pids)
        await until(lambda both=both: harness.pool.stats().deaths == both)  # type: ignore[misc]
    await until(lambda: 0 not in harness.pids and len(harness.pids) == 2)
    assert (await harness.run("return 1")).result == 1

    assert descriptors() == before


async def test_what_a_worker_writes_to_its_error_output_is_a_line_of_the_log(harness: PoolHarness) -> None:
    with structlog.testing.capture_logs() as events:
        pid = next(worker.pid for worker in harness.pool.stats().workers)
        worker = next(worker for worker in harness.pool._supervisor if worker.pid == pid)
        worker._connection.send(wire.WorkerReady([]))  # no message that it knows: it ends, loudly
        async with asyncio.timeout(20):
            while not any("wrote to" in event["event"] for event in events):  # noqa: ASYNC110 - nobody tells a test
                await asyncio.sleep(0.02)

    (text,) = (event["text"] for event in events if "wrote to its error output" in event["event"])
    assert text.startswith(f"worker {pid}: Traceback")
    assert "msgspec.ValidationError: Expected `array`" in text
