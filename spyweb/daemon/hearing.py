"""Have the parts of a daemon notice what other nodes have committed: as the bell rings, and with each beat."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from spyweb.cluster.node import ClusterNode
from spyweb.daemon.build import Daemon
from spyweb.logs.output import tell_refusal
from spyweb.ownership import CHIEF, Slot
from spyweb.subjects.when.service import MaintenanceService
from spyweb.web.access.keys import AccessService

ON_BEAT = ("events", "outbox", "locks", "incidents", "keys")  # what may be new; runs are taken up with a beat anyway
LEAST_S = 0.1  # between two reads of the same


async def hear_others(daemon: Daemon, node: ClusterNode) -> None:
    """Read what is new in the store, until cancelled."""
    runtime, alerts, services = daemon.runtime, daemon.alerts, daemon.services
    heard, woken = set[str](), asyncio.Event()
    wakes = {
        "events": daemon.triggers.wake,
        "outbox": runtime.outbox_sender.look,
        "locks": runtime.world.locks.look,
        "incidents": alerts.wake,
        "runs": node.look,
    }
    reads = {"incidents": services[MaintenanceService].load, "keys": services[AccessService].load}

    def hear(parts: Collection[str]) -> None:
        for part in wakes.keys() & parts:
            wakes[part]()
        heard.update(parts)
        woken.set()

    node.beaten, node.nodes.bell.hear = partial(hear, ON_BEAT), hear
    while True:
        await woken.wait()
        woken.clear()
        try:
            for part in reads.keys() & heard:
                heard.discard(part)
                await reads[part]()
        except Exception as error:  # noqa: BLE001 - a later version may have written what this one can't read
            tell_refusal("what other nodes have changed could not be read yet", error)
        await runtime.clock.sleep(LEAST_S)


async def prepare_for_slots(daemon: Daemon) -> None:
    """Learn, before slots are owned, what is on record of their jobs and channels."""
    await daemon.alerts.load()
    await daemon.signs.load()
    daemon.channel_checker.wake()


def busy_slots(daemon: Daemon) -> set[Slot]:
    """Return the slots in which this node sends or plans something: they are not given now."""
    return daemon.runtime.outbox_sender.busy_slots() | ({CHIEF} if daemon.alerts.planning.locked() else set())
