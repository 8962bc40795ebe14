"""What a daemon does every so often, each chore by itself."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.build import Daemon
from spyweb.daemon.chores import (
    STATUS_S,
    Chore,
    DescriptorWatch,
    ProgressReport,
    SteadyTime,
    list_chores,
    prune,
    repeat,
    restore_files,
)
from spyweb.daemon.systemd import Notifier
from spyweb.errors import LockHeld, NoAccess, StoreError
from spyweb.model import Outcome, RunId, RunState, Trigger
from spyweb.outbox.sender import OutboxSender
from spyweb.ownership import CHIEF, Ownership
from spyweb.runs.live import LiveJobs
from spyweb.settings.load import load_settings
from spyweb.settings.sections import LOCK_NAME
from spyweb.settings.units import DAY_MS
from spyweb.store.lock import hold_lock
from spyweb.store.model.incidents import SubjectNow
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.subjects.health.views import SCHEDULER_STALLED_MS, ChoreHealth
from spyweb.web.serve import PrivateSocket
from spyweb.web.tls import ServerCertificate
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import AT_MS, AT_ONCE, fail, succeed
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stalling import StallClocks
from tests.fakes.task_rows import row


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNotifier(Notifier):
    """systemd, and what it is told."""

    told: list[str] = field(default_factory=list)

    def _send(self, *fields: str) -> bool:
        self.told.extend(fields)
        return True


def make_daemon(root: Path, notifier: Notifier) -> Daemon:
    clock = FakeClock()
    runtime = SimpleNamespace(
        clock=clock,
        store=MemoryStore(clock),
        live=LiveJobs(),
        outbox_sender=None,
        runner=None,
        settings=load_settings(root, environ={}, flags={}),
    )
    scheduler = SimpleNamespace(lag_ms=0)
    reloader = SimpleNamespace(wake=lambda: notifier.status("woken"), settings=runtime.settings)
    daemon = SimpleNamespace(
        runtime=runtime,
        notifier=notifier,
        scheduler=scheduler,
        reloader=reloader,
        services=defaultdict(partial(SimpleNamespace, export=None)),
        heartbeat=SimpleNamespace(look=None),
        node=None,
    )
    return cast("Daemon", daemon)


def chores_of(root: Path, notifier: Notifier | None = None, certificate: object = None) -> dict[str, Chore]:
    socket = cast("PrivateSocket", FakeSocket(root))
    with hold_lock(root) as lock:
        renewed = cast("ServerCertificate | None", certificate)
        chores = list_chores(make_daemon(root, notifier or FakeNotifier()), lock, socket, renewed)
    found = {chore.name: chore for chore in chores}
    assert len(found) == len(chores)
    return found


@pytest.mark.parametrize(("watchdog_s", "every_s"), [(None, STATUS_S), (3.0, 3.0), (600.0, STATUS_S)])
async def test_the_watchdog_is_fed_as_often_as_systemd_wants_it(
    tmp_path: Path, watchdog_s: float | None, every_s: float
) -> None:
    notifier = FakeNotifier(watchdog_interval_s=watchdog_s)
    by_name = chores_of(tmp_path, notifier)
    assert by_name["progress"].every_s == every_s
    await by_name["progress"].do()
    await by_name["rescan"].do()
    assert notifier.told == ["WATCHDOG=1", "STATUS=0 jobs, 0 running", "STATUS=woken"]


def stalled_daemon(root: Path, notifier: Notifier, node: object = None) -> tuple[Daemon, SimpleNamespace]:
    daemon = cast("SimpleNamespace", make_daemon(root, notifier))
    daemon.scheduler.lag_ms, daemon.node = SCHEDULER_STALLED_MS + 1, node
    return cast("Daemon", daemon), daemon.scheduler


async def test_a_daemon_that_makes_no_progress_is_told_once_and_the_watchdog_starves(tmp_path: Path) -> None:
    notifier = FakeNotifier()
    daemon, scheduler = stalled_daemon(tmp_path, notifier)
    report = ProgressReport(daemon)
    with capture_logs() as lines:
        await report.tell()
        await report.tell()
        scheduler.lag_ms = 0
        await report.tell()
    assert [line["event"] for line in lines] == ["no progress"]
    behind = "STATUS=the scheduler is 5.001s behind"
    assert notifier.told == [behind, behind, "WATCHDOG=1", "STATUS=0 jobs, 0 running"]


async def test_while_postgresql_is_away_the_watchdog_is_fed_since_a_restart_would_not_help(tmp_path: Path) -> None:
    notifier = FakeNotifier()
    node = SimpleNamespace(trouble="no answer", status="PostgreSQL does not answer: no answer")
    await ProgressReport(stalled_daemon(tmp_path, notifier, node)[0]).tell()
    assert notifier.told == ["WATCHDOG=1", "STATUS=0 jobs, 0 running; PostgreSQL does not answer: no answer"]


async def test_that_hardly_any_descriptors_are_left_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [100, 63, 10, 100, 1]
    monkeypatch.setattr("spyweb.daemon.chores.descriptors.left", lambda: left.pop(0))
    watch = DescriptorWatch()
    with capture_logs() as told:
        for _ in range(5):
            await watch.look()
    assert [line["left"] for line in told] == [63, 1]


@dataclass
class FakeSocket:
    """The private socket; whether somebody has removed it."""

    path: Path
    is_removed: bool = False

    async def restore(self) -> bool:
        was_removed, self.is_removed = self.is_removed, False
        return was_removed


async def test_a_lock_file_and_a_socket_that_were_removed_are_made_again_and_told(tmp_path: Path) -> None:
    private = FakeSocket(tmp_path / "spyweb.sock", is_removed=True)
    with hold_lock(tmp_path) as lock, capture_logs() as told:
        (tmp_path / LOCK_NAME).unlink()
        for _ in range(2):
            await restore_files(lock, cast("PrivateSocket", private))
        with pytest.raises(LockHeld):
            hold_lock(tmp_path)

    assert [line["event"] for line in told] == [
        "the lock file was removed, and is made again",
        "the socket was removed, and is made again",
    ]


async def test_a_lock_file_that_can_not_be_made_again_is_told_and_nothing_else_happens(tmp_path: Path) -> None:
    private = FakeSocket(tmp_path / "spyweb.sock")
    with hold_lock(tmp_path) as lock, capture_logs() as told:
        (tmp_path / LOCK_NAME).unlink()
        with hold_lock(tmp_path):
            await restore_files(lock, cast("PrivateSocket", private))

    assert told[0]["log_level"] == "error"
    assert "is in use by" in told[0]["reason"]


async def test_a_renewed_certificate_is_looked_for_where_there_is_one(tmp_path: Path) -> None:
    looked: list[str] = []
    certificate = SimpleNamespace(renew=lambda: looked.append("renewed"))
    for given in (None, certificate):
        await chores_of(tmp_path, certificate=given)["certificate"].do()
    assert looked == ["renewed"]


MONTH_S = 30 * 24 * 3600.0


async def test_a_clock_that_is_months_ahead_does_not_count_until_it_has_been_so_for_a_day() -> None:
    clock = FakeClock()
    steady = SteadyTime(clock)
    await clock.turn(600)
    true_ms = clock.now_ms()
    clock.jump(3 * MONTH_S)
    assert steady.now_ms() == true_ms
    await clock.turn(600)
    assert steady.now_ms() == true_ms + 600_000
    clock.jump(-3 * MONTH_S)
    assert steady.now_ms() == clock.now_ms()

    clock.jump(3 * MONTH_S)
    steady.now_ms()
    await clock.turn(DAY_MS / 1000 - 1)
    assert steady.now_ms() < clock.now_ms()
    await clock.turn(1)
    assert steady.now_ms() == clock.now_ms()


async def test_a_clock_that_is_ahead_when_the_daemon_starts_does_not_count_either() -> None:
    clock = FakeClock()
    known_ms = clock.now_ms() - int(MONTH_S * 1000)
    steady = SteadyTime(clock, known_ms)
    await clock.turn(60)
    assert steady.now_ms() == known_ms + 60_000


async def test_a_clock_that_is_set_back_counts_at_once_and_so_does_an_hour_ahead_which_is_no_leap() -> None:
    clock = FakeClock()
    steady = SteadyTime(clock, clock.now_ms() + 5)
    assert steady.now_ms() == clock.now_ms()
    clock.jump(3600)
    assert steady.now_ms() == clock.now_ms()
    clock.jump(-MONTH_S)
    assert steady.now_ms() == clock.now_ms()
    await clock.turn(60)
    assert steady.now_ms() == clock.now_ms()


class FakeOutboxSender:
    async def prune(self, older_than_ms: int) -> int:
        return older_than_ms


@pytest.mark.parametrize(
    ("runs", "left"),
    [
        ("keep = 100", [4, 3, 2, 1]),
        ("keep = 2", [4, 3]),
        ("keep_tasks = 1", [4, 3, 2, 1]),
        ('keep_for = "25m"', [4, 3]),
    ],
)
async def test_the_history_is_cut_to_what_the_settings_say(tmp_path: Path, runs: str, left: list[int]) -> None:
    (tmp_path / "config.toml").write_text(f"[runs]\n{runs}\n")
    settings = load_settings(tmp_path, environ={}, flags={})
    clock = FakeClock()
    store = MemoryStore(clock)
    for _ in range(4):
        (run,) = await store.runs.record(Change(new=[NewRun(job=PRICES, state=RunState.RUNNING, trigger=Trigger())]))
        assert run is not None
        await store.runs.record(Change(end=[End(run=run, ended_ms=clock.now_ms(), outcome=Outcome.SUCCESS)]))
        await store.tasks.add(run, [row("a")])
        await clock.turn(600)

    await prune(store, cast("OutboxSender", FakeOutboxSender()), settings, clock.now_ms())

    assert [run.id for run in await store.runs.list(PRICES)] == left
    if settings.runs.keep_for_ms > 3_600_000:
        kept = left[: settings.runs.keep_tasks]
        assert sorted(await store.tasks.of_runs([RunId(run) for run in left]), reverse=True) == kept


async def test_incidents_that_are_over_are_kept_for_90_days_and_open_ones_for_good(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    for job in ("backup", "prices"):
        await fail(store.incidents, job)
    await succeed(store.incidents, "backup")
    await store.incidents.plan([], {"job:backup": SubjectNow(policy=AT_ONCE), "job:prices": SubjectNow(policy=AT_ONCE)})
    settings = load_settings(tmp_path, environ={}, flags={})
    for now_ms, left in ((AT_MS + 90 * DAY_MS, 2), (AT_MS + 90 * DAY_MS + 1, 1)):
        await prune(store, cast("OutboxSender", FakeOutboxSender()), settings, now_ms)
        assert len(await store.incidents.list()) == left


EVERY_S = 60.0


class ChoreHarness:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ownership = Ownership(self.clock)
        runtime = SimpleNamespace(clock=self.clock, live=SimpleNamespace(ownership=self.ownership))
        self.daemon = cast("Daemon", SimpleNamespace(runtime=runtime, chores={}))
        self.began_ms = self.clock.now_ms()

        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, *chores: Chore) -> None:
        loop = asyncio.get_running_loop()
        self.tasks += [loop.create_task(repeat(self.daemon, chore)) for chore in chores]
        await self.clock.turn()

    async def sweep(self, do: Callable[[], Awaitable[object]]) -> None:
        await self.start(Chore("sweep", EVERY_S, do))

    def health(self) -> ChoreHealth:
        (found,) = self.daemon.chores.values()
        return found


@pytest.fixture
async def harness() -> AsyncIterator[ChoreHarness]:
    made = ChoreHarness()
    yield made
    for task in made.tasks:
        task.cancel()


async def test_a_chore_is_done_again_and_again_and_account_is_kept_of_it(harness: ChoreHarness) -> None:
    times: list[int] = []

    async def sweep() -> None:
        times.append(harness.clock.now_ms() - harness.began_ms)
        await harness.clock.sleep(2)

    await harness.sweep(sweep)
    assert harness.health() == ChoreHealth(name="sweep", every_s=EVERY_S, next_at_ms=harness.began_ms + 60_000)
    await harness.clock.turn(150)
    assert times == [60_000, 122_000]
    found = harness.health()
    assert (found.last_at_ms, found.last_took_ms, found.error) == (harness.began_ms + 122_000, 2000, "")
    assert found.next_at_ms == harness.began_ms + 184_000


@pytest.mark.parametrize("error", [StoreError("the disk is full"), NoAccess("spyweb.db: no access as me")])
async def test_what_the_store_refuses_is_done_the_next_time(harness: ChoreHarness, error: Exception) -> None:
    tried: list[int] = []

    async def refuse_at_first() -> None:
        tried.append(harness.clock.now_ms())
        if len(tried) == 1:
            raise error

    await harness.sweep(refuse_at_first)
    with capture_logs() as lines:
        await harness.clock.turn(EVERY_S)
    assert [(line["event"], line["chore"], line["by_s"]) for line in lines] == [("put off", "sweep", EVERY_S)]
    assert harness.health().error == str(error)
    await harness.clock.turn(2 * EVERY_S)
    assert len(tried) == 3
    assert harness.health().error == ""


async def test_a_bug_in_a_chore_is_logged_and_ends_neither_it_nor_the_daemon(harness: ChoreHarness) -> None:
    async def fail() -> None:
        raise ValueError("no such thing")

    await harness.sweep(fail)
    with capture_logs() as lines:
        await harness.clock.turn(2 * EVERY_S)
    assert [line["event"] for line in lines] == ["internal error in a chore"] * 2
    assert harness.health().error == "ValueError: no such thing"


async def test_a_chore_that_holds_the_loop_is_named(harness: ChoreHarness) -> None:
    clocks = StallClocks()
    recorder = clocks.recorder()
    stalls: list[str] = []
    recorder.listen = lambda stall: stalls.append(str(stall.work))

    async def sweep() -> None:
        clocks.compute(1.0)

    loop = asyncio.get_running_loop()
    recorder.install(loop)
    try:
        await harness.sweep(sweep)
        await harness.clock.turn(EVERY_S)
    finally:
        loop.set_task_factory(None)
    assert stalls == ["chore 'sweep'"]


async def test_what_is_done_once_for_all_nodes_is_done_by_the_chief(harness: ChoreHarness) -> None:
    done: list[str] = []

    async def do(name: str) -> None:
        done.append(name)

    common = Chore("common", EVERY_S, partial(do, "common"), is_common=True)
    await harness.start(common, Chore("own", EVERY_S, partial(do, "own")))
    harness.ownership.owned = set()
    await harness.clock.turn(EVERY_S)
    assert done == ["own"]
    harness.ownership.owned.add(CHIEF)
    await harness.clock.turn(EVERY_S)
    assert sorted(done) == ["common", "own", "own"]


def test_the_store_is_counted_pruned_and_swept_once_for_all_nodes(tmp_path: Path) -> None:
    assert {name for name, chore in chores_of(tmp_path).items() if chore.is_common} == {"prune", "sweep", "uptime"}
