"""Four daemons on one PostgreSQL: killed, frozen, cut off, drained, again and again, and PostgreSQL itself as well.

No due time is run twice or left without a record, no update is lost, and nothing is written by a node that was declared
dead.  Due times that the machine has no time for are on record as skipped.

    pytest --torture --minutes 10 --due 1000 tests/stress/test_killed_nodes.py
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spyweb.ownership import slot_of
from spyweb.runs.runner import LEFT_OPEN
from tests.fakes.cluster import Cluster, ClusterNode, ClusterReader, a_cluster
from tests.fakes.postgres import PostgresPlace, PostgresServer, connected

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LEASE_MS = 3000
PERIOD_MS = 500
FEW = 10  # by the last digit of its name each tenth job adds to what others add to, and tells the witness
SEED = 5
OPEN = "SELECT job FROM run WHERE state NOT IN ('ended', 'waiting')"
OWNERS = """
    SELECT slot.id, node.name, state = 'l' FROM slot
    LEFT JOIN node ON node.id = owner LEFT JOIN lane ON node = owner WHERE pool = ''
"""
OUTCOMES = "SELECT coalesce(outcome, state), sum(count) FROM run GROUP BY 1 ORDER BY 1"
OVER = re.compile(r"joins anew: (.*)")
LEFT = re.compile(rf'"event": ?"{LEFT_OPEN}".*"runs": ?(\d+)')
BEGUN = ("success", "failed", "lost", "stopped", None)
SCRIPT = """
function run(ctx)
    state.increment("count:" .. ctx.job)
    {shared}
end
"""
MORE = """
    state.increment("total:" .. math.random(8))
    http_get("{origin}/" .. ctx.job .. "/" .. math.floor(ctx.scheduled_at * 1000 + 0.5) .. "/" .. ctx.attempt)
"""
# At each commit that touches runs or cursors: does the transaction hold the lane of a node that is not declared dead?
# `xmax` is who holds a row, `xmin` who wrote it.
WATCH = """
CREATE TABLE unfenced (what text);
CREATE FUNCTION note_unfenced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM lane WHERE state IN ('a', 'd') AND CAST(pg_current_xact_id() AS xid) IN (xmax, xmin)
    ) THEN
        INSERT INTO unfenced VALUES (TG_TABLE_NAME || ' ' || NEW.job);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch AFTER INSERT OR UPDATE ON run
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_unfenced();
CREATE CONSTRAINT TRIGGER watch AFTER INSERT OR UPDATE ON cursor
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_unfenced();
"""
NEWEST_LIVES = """
    SELECT state = 'a' FROM lane WHERE node = (SELECT max(id) FROM node WHERE name = %s)
"""
# Not all have shares: where the machine is too slow for its jobs, these are never idle, and stay where they are.
ALL_LIVE = """
    SELECT every(owner IN (SELECT node FROM lane WHERE state = 'a')) AND
        (SELECT count(*) = 4 FROM lane WHERE state = 'a') FROM slot
"""
# By hand, when all is over: what each check must find.
PLANTED = """
UPDATE cursor SET due_ms = due_ms WHERE job = 'job0';
UPDATE run SET due_ms = due_ms - 1 WHERE id = (SELECT max(id) FROM run WHERE job = 'job1' AND attempt = 1);
UPDATE run SET last_due_ms = due_ms + 500 WHERE id = (SELECT min(id) FROM run WHERE job = 'job2' AND attempt = 1);
UPDATE entry SET value = '0' WHERE key = 'count:job3';
UPDATE run SET state = 'running' WHERE id = (SELECT max(id) FROM run WHERE job = 'job4');
"""


@dataclass
class Witness:
    """A server beside the daemons: what scripts tell it, it remembers."""

    origin: str = ""
    told: Counter[str] = field(default_factory=Counter)  # job, due time, attempt

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.told[head.split(b" ", 2)[1].decode()] += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def a_witness() -> AsyncIterator[Witness]:
    witness = Witness()
    server = await asyncio.start_server(witness.serve, "127.0.0.1", 0)
    witness.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield witness
    finally:
        server.close()


@dataclass
class Trouble:
    """What befalls the nodes, in an order that the seed decides, and how long others took to take over."""

    cluster: Cluster
    server: PostgresServer
    dice: random.Random
    takeovers: list[float] = field(default_factory=list)  # seconds
    befallen: Counter[str] = field(default_factory=Counter)
    one_outage: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def lease_s(self) -> float:
        return self.cluster.lease_ms / 1000

    async def until(self, end: float) -> None:
        """Let it befall one or two nodes at a time, so that others live."""
        loop = asyncio.get_running_loop()
        kinds = [self.kill, self.freeze, self.cut, self.doubt, self.isolate, self.drain, self.outage]
        under_way: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while loop.time() < end:
                under_way = {name: task for name, task in under_way.items() if not task.done()}
                free = [node for node in self.cluster.nodes if node.name not in under_way]
                if len(under_way) < 2:
                    kind, node = self.dice.choice(kinds), self.dice.choice(free)
                    self.befallen[kind.__name__] += 1
                    under_way[node.name] = tasks.create_task(kind(node))
                await asyncio.sleep(self.dice.uniform(0.2, 0.8) * self.lease_s)

    def some_time(self, least: float, most: float) -> Awaitable[None]:
        """Wait between so many leases."""
        return asyncio.sleep(self.dice.uniform(least, most) * self.lease_s)

    async def kill(self, node: ClusterNode) -> None:
        former = await self.cluster.id_of(node)
        await node.stopped(signal.SIGKILL)
        await self.note_takeover(former)
        await self.some_time(0, 1)
        node.start()
        await self.joined(node, former)

    async def freeze(self, node: ClusterNode) -> None:
        """Stop it where it stands, for less than a lease or for more."""
        former = await self.cluster.id_of(node)
        node.send(signal.SIGSTOP)
        if self.dice.random() < 0.3:
            await self.some_time(0.1, 0.6)
            node.send(signal.SIGCONT)
            return
        await self.note_takeover(former)
        await self.some_time(0.1, 1)
        node.send(signal.SIGCONT)
        await self.cluster.until(NEWEST_LIVES, node.name)

    async def cut(self, node: ClusterNode) -> None:
        for _ in range(self.dice.randint(1, 4)):
            node.proxy.cut()
            await self.some_time(0, 0.2)

    async def doubt(self, node: ClusterNode) -> None:
        """Lose answers, those to a COMMIT among them: what was asked for is done, or not."""
        node.proxy.hold_answers()
        await asyncio.sleep(self.dice.uniform(0.005, 0.3))
        node.proxy.cut()
        node.proxy.release()
        await self.some_time(0.2, 0.5)

    async def isolate(self, node: ClusterNode) -> None:
        """Nothing passes for a time, in either direction; then it goes on, or the connections break."""
        node.proxy.hold_requests()
        node.proxy.hold_answers()
        await self.some_time(0.2, 2)
        if self.dice.random() < 0.5:
            node.proxy.cut()
        node.proxy.release()
        await self.some_time(0.2, 1)

    async def drain(self, node: ClusterNode) -> None:
        former = await self.cluster.id_of(node)
        assert await node.stopped() == 0, node.said()[-2000:]
        await self.some_time(0, 0.5)
        node.start()
        await self.joined(node, former)

    async def outage(self, _: ClusterNode) -> None:
        """Take PostgreSQL itself away, in order or not."""
        async with self.one_outage:
            if self.dice.random() < 0.5:
                self.server.freeze()
                await self.some_time(0.1, 1.5)
                self.server.thaw()
            else:
                self.server.kill()
                await self.some_time(0, 1)
                self.server.start()
            await self.some_time(1, 2)

    async def note_takeover(self, former: int) -> None:
        """Wait until others own all slots of a node, if it had any yet."""
        query = "SELECT count(*) = 0 FROM slot WHERE owner = %s"
        self.takeovers.append(await self.cluster.until(query, former))

    async def joined(self, node: ClusterNode, former: int) -> None:
        """Wait until it has joined; a start that found PostgreSQL away is done again, as systemd does."""
        query = "SELECT max(id) > %s FROM node WHERE name = %s"
        joining = asyncio.create_task(self.cluster.until(query, former, node.name))
        while not joining.done():
            if not node.runs:
                node.start()
            await asyncio.sleep(0.2)
        await joining


@pytest.mark.deep
async def test_no_due_time_is_lost_or_run_twice_whatever_befalls_the_nodes(
    tmp_path: Path, own_postgres: PostgresServer, minutes: float, due: int, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = asyncio.get_running_loop()
    cluster = Cluster(PostgresPlace(own_postgres.url, "spyweb"), tmp_path, LEASE_MS, 500)
    async with a_witness() as witness, a_cluster(cluster, ["n1", "n2", "n3", "n4"]):
        for number in range(due * PERIOD_MS // 1000):
            script = SCRIPT.replace("{shared}", "" if number % FEW else MORE.replace("{origin}", witness.origin))
            cluster.job(f"job{number}", script, f'every = "{PERIOD_MS}ms"\nretries = 2\nretry_delay = "1s"')
        for node in cluster.nodes:
            node.start()
        await cluster.until("SELECT count(owner) > 0 FROM slot")
        await asyncio.to_thread(cluster.ask, WATCH)  # it waits for transactions, which pass through this loop
        await cluster.until(ALL_LIVE)
        multixacts = await asyncio.to_thread(cluster.multixacts)
        began = loop.time()
        trouble = Trouble(cluster, own_postgres, random.Random(SEED))
        await trouble.until(began + minutes * 60)
        took = loop.time() - began
        await cluster.until(ALL_LIVE)
        codes = [await node.stopped() for node in cluster.nodes]
    found = verdict(cluster, witness, multixacts)
    with capsys.disabled():
        sys.stdout.write(report(cluster, trouble, due, took, found))
    assert codes == [0, 0, 0, 0]
    assert not any(found.values()), found
    plant(cluster, witness)
    assert all(verdict(cluster, witness, multixacts).values()), "what was planted is not found"


def plant(cluster: Cluster, witness: Witness) -> None:
    cluster.ask(PLANTED)
    witness.told.update(list(witness.told)[:1])
    place = cluster.place
    with connected(*place) as first, connected(*place) as second, first.transaction(), second.transaction():
        for connection in (first, second):
            connection.execute("SELECT FROM lane FOR SHARE")


def verdict(cluster: Cluster, witness: Witness, multixacts: tuple[int, int]) -> dict[str, list[str]]:
    """Return everything that is not as promised, by promise."""
    reader = ClusterReader(cluster.root, cluster.place)
    due, updates = list[str](), list[str]()
    begun = succeeded = 0
    for (name,) in cluster.ask("SELECT job FROM cursor"):
        due += [f"{name}: {gap}" for gap in reader.gaps(name, PERIOD_MS)]
        outcomes = reader.outcomes(name)
        done, all_begun = outcomes["success"], sum(outcomes[outcome] for outcome in BEGUN)
        if name.endswith("0"):
            begun, succeeded = begun + all_begun, succeeded + done
        count = int(reader.value("state", f"count:{name}") or 0)
        if not done <= count <= all_begun:
            updates.append(f"{name}: counted {count}, with {done} successes of {all_begun} runs that began")
    total = sum(int(reader.value("state", f"total:{number}") or 0) for number in range(1, 9))
    if not succeeded <= total <= begun:
        updates.append(f"counted {total} in all, with {succeeded} successes of {begun} runs that began")
    used = cluster.multixacts()
    return {
        "due times with two records": [each for each in due if each.endswith("twice")],
        "due times without a record": [each for each in due if not each.endswith("twice")],
        "attempts begun twice": [what for what, times in witness.told.items() if times > 1],
        "updates lost or doubled": updates,
        "writes without the fence": [what for (what,) in cluster.ask("SELECT what FROM unfenced")],
        "runs open that no node has left so": unexplained(cluster),
        "MultiXacts": [f"{multixacts} → {used}"] if used != multixacts else [],
    }


def unexplained(cluster: Cluster) -> list[str]:
    """Return open runs beyond those that the next start is to find: their slots are not given, nor is it silent.

    A node that was stopped has logged how many ends PostgreSQL was too slow for; one that was dead by then could not.
    """
    owners = {number: (name, has_left) for number, name, has_left in cluster.ask(OWNERS)}
    left = {node.name: sum(map(int, LEFT.findall(node.said()))) for node in cluster.nodes}
    found = []
    for (job,) in cluster.ask(OPEN):
        name, has_left = owners[slot_of(job).number]
        if has_left:
            left[name] -= 1
        if name is None or (has_left and left[name] < 0):
            found.append(f"{job} at {name}")
    return found


def report(cluster: Cluster, trouble: Trouble, due: int, took: float, found: dict[str, list[str]]) -> str:
    """Return a table of what happened, and of how much is not as promised."""
    ((runs,),) = cluster.ask("SELECT count(*) FROM run WHERE started_ms IS NOT NULL")
    leases = sorted(takeover / trouble.lease_s for takeover in trouble.takeovers) or [0.0]
    over = Counter(OVER.findall("".join(node.said() for node in cluster.nodes)))
    rows = [
        ("seconds", f"{took:.0f}"),
        ("due a second", f"{due}"),
        ("runs begun", f"{runs}, {runs / took:.0f} a second"),
        *((f"rows: {outcome}", f"{count}") for outcome, count in cluster.ask(OUTCOMES)),
        *((f"fault: {kind}", f"{times}") for kind, times in sorted(trouble.befallen.items())),
        *((f"joined anew: {why}", f"{times}") for why, times in over.most_common()),
        ("runs open after the stops", f"{len(cluster.ask(OPEN))}"),
        ("takeovers", f"{len(trouble.takeovers)}"),
        ("  in leases", f"median {leases[len(leases) // 2]:.2f}, longest {leases[-1]:.2f}"),
        *((promise, f"{len(broken)}") for promise, broken in found.items()),
    ]
    return "\n" + "".join(f"{value:<24}{name}\n" for name, value in rows)
