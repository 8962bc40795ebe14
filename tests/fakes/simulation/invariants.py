"""The promises that hold at every moment, whatever happens: each a sentence of docs/design, and how it is checked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spyweb.ownership import slot_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fakes.simulation.database import SimDatabase
    from tests.fakes.simulation.world import Daemon

PERIOD = "SELECT substr(schedule, 7) FROM cursor WHERE job = ?"  # of `every 700`
RECORDED = "SELECT 1 FROM run WHERE job = ?1 AND due_ms <= ?2 AND coalesce(last_due_ms, due_ms) >= ?2"


LATE_MS = 3_000


class Broken(Exception):
    """A promise is not kept."""


class Invariants:
    def __init__(self) -> None:
        self.furthest: Counter[str] = Counter()  # the greatest cursor so far, by job
        self.begun: Counter[tuple[str, int | None, int, int]] = Counter()

    def begins(self, database: SimDatabase, node: int, run: int) -> None:
        """Check a run that begins outside, where no fence reaches."""
        found = database.raw.execute("SELECT job, due_ms, attempt, state FROM run WHERE id = ?", (run,)).fetchone()
        # "Nothing begins that is not on record."
        if found is None or found[3] == "waiting":
            raise Broken(f"run {run} begins, and is not on record as running: {found}")
        job, due_ms, attempt, _ = found
        # "No due time runs twice."
        key = (job, due_ms, attempt, 0 if due_ms is not None else run)
        self.begun[key] += 1
        if self.begun[key] > 1:
            raise Broken(f"{key} begins twice")
        # "Nothing begins on a node once the others have declared it dead."
        if not database.lanes[node].is_alive:
            raise Broken(f"run {run} of {job} begins on node {node}, which is dead")

    def recovered(self, database: SimDatabase, daemons: Mapping[int, Daemon]) -> None:
        """Check that all work is done again, once nothing fails any more."""
        # "After a failure all jobs run again, on the nodes that live."
        for slot, owner in database.owners.items():
            if owner not in daemons or slot not in (daemons[owner or 0].ownership.owned or ()):
                raise Broken(f"{slot} is owned by {owner}, which does not work for it")
        now_ms = database.now_ms()
        for job, due_ms, schedule, pool in database.raw.execute("SELECT job, due_ms, schedule, pool FROM cursor"):
            live = daemons[database.owners[slot_of(job, pool)] or 0].parts.live.find(job)
            if live and schedule.startswith("every") and now_ms - due_ms > LATE_MS:
                raise Broken(f"{job} is not run any more: its cursor is {now_ms - due_ms} ms behind")
        under_way = {run.id for daemon in daemons.values() for run in daemon.parts.runner.under_way()}
        running = "SELECT id, job FROM run WHERE state = 'running' AND started_ms < ?"  # not only just claimed
        for run, job in database.raw.execute(running, (now_ms - LATE_MS,)):
            if run not in under_way:
                raise Broken(f"run {run} of {job} is on record as running, and nobody runs it")

    def commits(self, database: SimDatabase, node: int) -> None:
        """Check what a transaction is about to commit."""
        # "A node that was declared dead writes nothing."
        if not database.lanes[node].is_alive:
            raise Broken(f"a write of node {node}, which is dead, is accepted")
        for writer, job, owner, after, was_due_ms, due_ms, is_plain in database.raw.execute("SELECT * FROM touched"):
            # "A slot has one owner, and only the owner claims."
            is_nobodys = after == writer and (owner is None or not database.lanes[owner].is_alive)
            if owner != writer and not is_nobodys:
                raise Broken(f"node {writer} claims {job}, in a slot of node {owner}")
            # "Every due time below a cursor is on record"; those up to an earlier cursor, where a clock was set back.
            if is_plain and due_ms > was_due_ms:
                period_ms = int(database.raw.execute(PERIOD, (job,)).fetchone()[0])
                for each_ms in range(due_ms, max(was_due_ms, self.furthest[job]), -period_ms):
                    if not database.raw.execute(RECORDED, (job, each_ms)).fetchone():
                        raise Broken(f"{job}: due time {each_ms} is below its cursor {due_ms}, and on no record")
            self.furthest[job] = max(self.furthest[job], was_due_ms, due_ms)
        database.raw.execute("DELETE FROM touched")
