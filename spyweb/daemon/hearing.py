"""Have the parts of a daemon look at what other nodes have committed: as the bell rings, with each beat, and for slots.

One step for all of it: what a busy node commits makes the others check at most ten times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from spyweb.cluster.node import ClusterNode
from spyweb.daemon.build import Daemon
from spyweb.logs.output import tell_refusal
from spyweb.ownership import CHIEF, Slot
from spyweb.subjects.when.service import MaintenanceService
from spyweb.web.access.keys import AccessService

ON_BEAT = ("events", "outbox", "locks", "incidents", "keys")  # what may be new; runs are taken up with a beat anyway
ON_GAIN = (*ON_BEAT, "channels")
LEAST_S = 0.1  # until the next check


async def hear_others(daemon: Daemon, node: ClusterNode) -> None:
    """Have those look whom it concerns, until cancelled."""
    runtime, alerts, services = daemon.runtime, daemon.alerts, daemon.services
    concerned: dict[str, Sequence[Callable[[], Awaitable[None] | None]]] = {
        "channels": [daemon.channel_checker.wake],
        "events": [daemon.triggers.wake],
        "incidents": [alerts.wake, services[MaintenanceService].load],
        "keys": [services[AccessService].load],
        "locks": [runtime.world.locks.look],
        "outbox": [runtime.outbox_sender.look],
        "runs": [node.work.hear],
    }
    heard, woken = set[str](), asyncio.Event()

    def hear(parts: Collection[str]) -> None:
        heard.update(parts)
        woken.set()

    node.beaten, node.gained, node.nodes.bell.hear = partial(hear, ON_BEAT), partial(hear, ON_GAIN), hear
    while True:
        await woken.wait()
        woken.clear()
        now = [look for part, those in concerned.items() if part in heard for look in those]
        heard.clear()
        for look in now:
            try:
                await (look() or runtime.clock.sleep(0))
            except Exception as error:  # noqa: BLE001 - a later version may have written what this one can't read
                tell_refusal("what other nodes have changed could not be read yet", error)
        await runtime.clock.sleep(LEAST_S)


async def prepare_for_slots(daemon: Daemon) -> None:
    """Learn, before slots are owned, what is on record of their jobs and channels."""
    await daemon.alerts.load()
    await daemon.signs.load()


def busy_slots(daemon: Daemon) -> set[Slot]:
    """Return the slots in which this node sends or plans something: they are not given now."""
    return daemon.runtime.outbox_sender.busy_slots() | ({CHIEF} if daemon.alerts.planning.locked() else set())
