"""This daemon as a node of a cluster: how it joins, what it says of itself, and how it hears what others commit.

Its parts look at that as the bell rings, with each beat, and for slots.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from spyweb import __version__
from spyweb.cluster.node import MOST_POOLS, ClusterNode
from spyweb.daemon.runtime import JobRuntime
from spyweb.logs.output import tell_refusal
from spyweb.ownership import CHIEF, Slot
from spyweb.runs.pings import PingRuns
from spyweb.scheduler.scheduler import Scheduler
from spyweb.scheduler.slots import SlotWork
from spyweb.settings.sections import ServerSettings
from spyweb.specs.server_file import find_server
from spyweb.store.model.nodes import Node
from spyweb.subjects.when.service import MaintenanceService
from spyweb.web.access.keys import AccessService
from spyweb.web.endpoints import FOLDER as UI_FOLDER
from spyweb.web.serve import url_of

if TYPE_CHECKING:
    from spyweb.daemon.build import Daemon

BOOT = Path("/proc/sys/kernel/random/boot_id")  # unlike /etc/machine-id, no two machines have the same by an image
DIGEST_BYTES = 16
ON_BEAT = ("events", "outbox", "locks", "incidents", "keys")  # what may be new; runs are taken up with a beat anyway
ON_GAIN = (*ON_BEAT, "channels")
LEAST_S = 0.1  # between two checks of what others have committed: a busy node is heard ten times a second

log = structlog.get_logger()


async def join_cluster(runtime: JobRuntime) -> None:
    """Become a node that owns nothing yet, where the database is for several.  Raises Refused and StoreError."""
    own, settings, ownership = runtime.settings.cluster, runtime.settings, runtime.live.ownership
    if runtime.store.nodes is None:
        return
    node = Node(
        name=own.name,
        url=own.url or reachable_url(settings.server, has_content(settings.root)),
        version=__version__,
        labels=own.labels,
        is_standby=own.standby,
        only_labels=own.only_labels,
        lease_ms=own.lease_ms,
    )
    ownership.owned, ownership.trusted_until = set(), 0
    await runtime.store.nodes.join(node, place_of(settings.daemon.data_dir))


def has_content(root: Path) -> bool:
    return (root / UI_FOLDER).is_dir() or find_server(root) is not None


def reachable_url(server: ServerSettings, is_beside: bool = False) -> str:
    """Return where other machines reach the dashboard of this one; empty where they do not.

    It is beside the project's content, if there is any, on the next port.
    """
    host, port = server.host, server.dashboard_port or server.port + is_beside
    with suppress(ValueError):
        address = ip_address(host)
        host = "" if address.is_loopback else platform.node() if address.is_unspecified else host
    is_reachable = server.enabled and host not in ("", "localhost")
    return url_of(host, port, is_tls=bool(server.tls_cert)) if is_reachable else ""


def place_of(data_dir: Path) -> bytes:
    """Return what tells this data directory from those of other nodes."""
    boot = BOOT.read_text() if BOOT.is_file() else ""
    place = f"{boot}\n{platform.node()}\n{data_dir.resolve()}"
    return blake2b(place.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES).digest()


def build_node(runtime: JobRuntime, scheduler: Scheduler, pings: PingRuns) -> ClusterNode | None:
    """Build the node that has joined; None for a daemon that is alone on its database."""
    store, live, own = runtime.store, runtime.live, runtime.settings.cluster
    if store.nodes is None:
        return None
    work = SlotWork(live=live, scheduler=scheduler, runner=runtime.runner, pings=pings, runs=store.runs)
    node = ClusterNode(nodes=store.nodes, ownership=live.ownership, work=work, clock=runtime.clock, settings=own)

    def look_at_files() -> None:
        files = "\n".join(f"{job.id} {job.digest}" for job in sorted(live, key=lambda job: job.id))
        node.folder = blake2b(files.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        node.pools = frozenset(job.pool for job in live)
        node.wanted = frozenset(job.pool for job in live if job.spec.enabled)
        if len(node.pools) > MOST_POOLS:
            log.error("jobs ask for too many different labels and nodes: some do not run", most=MOST_POOLS)

    live.on_linked(look_at_files)
    store.on_fenced(node.be_over)
    return node


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
