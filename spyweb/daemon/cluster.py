"""This daemon as a node of a cluster: how it joins, what it says of itself, and the node's loops."""

from __future__ import annotations

import platform
from contextlib import suppress
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path

import structlog

from spyweb import __version__
from spyweb.cluster.node import MOST_POOLS, ClusterNode
from spyweb.daemon.runtime import JobRuntime
from spyweb.runs.pings import PingRuns
from spyweb.scheduler.scheduler import Scheduler
from spyweb.scheduler.slots import SlotWork
from spyweb.settings.sections import ServerSettings
from spyweb.specs.server_file import find_server
from spyweb.store.model.nodes import Node
from spyweb.web.endpoints import FOLDER as UI_FOLDER
from spyweb.web.serve import url_of

BOOT = Path("/proc/sys/kernel/random/boot_id")  # unlike /etc/machine-id, no two machines have the same by an image
DIGEST_BYTES = 16

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
        if len(node.pools) > MOST_POOLS:
            log.error("jobs ask for too many different labels and nodes: some do not run", most=MOST_POOLS)

    live.on_linked(look_at_files)
    store.on_fenced(node.be_over)
    return node
