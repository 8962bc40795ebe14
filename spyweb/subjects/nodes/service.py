"""The nodes of the cluster of this daemon: which are alive, and which of them runs which job."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from sys import intern

from spyweb.cluster.node import ClusterNode
from spyweb.errors import Refused
from spyweb.ownership import Slot
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.settings.reading import Names
from spyweb.store.model.nodes import Node, NodeState
from spyweb.subjects.health.views import ClusterVitals
from spyweb.subjects.nodes.views import NodeChange, NodeView
from spyweb.views.runs import copied

LIVING = (NodeState.ALIVE, NodeState.DRAINING)


@dataclass(slots=True, kw_only=True, eq=False)
class NodesService:
    live: LiveJobs
    cluster: ClusterNode | None = None  # none: the database is a file of this daemon's own
    dead: Sequence[str] = ()  # nodes that were declared dead, and have not come back

    def owner_of(self, slot: Slot) -> Node | None:
        """Return the living node that owns a slot, as of the last beat."""
        beat = self.cluster.last if self.cluster else None
        owner = beat.slots.get(slot) if beat else None
        return next((node for node in beat.living if node.id == owner), None) if beat else None

    def node_of(self, job: LiveJob) -> str:
        """Return the name of the node that runs a job; empty where no node does, or there is one node alone."""
        beat = self.cluster.last if self.cluster else None
        node = self.owner_of(job.slot) if beat and len(beat.living) > 1 else None
        return intern(node.name) if node else ""

    def vitals(self) -> ClusterVitals | None:
        """Return what health and metrics show of the cluster, as of the last beat."""
        beat = self.cluster.last if self.cluster else None
        if not self.cluster or not beat:
            return None
        living = {node.id for node in beat.living}
        served = {slot.pool for slot, owner in beat.slots.items() if owner in living}
        return ClusterVitals(
            nodes=len(living),
            owned=sum(owner == self.cluster.nodes.me for owner in beat.slots.values()),
            unowned=sum(owner not in living for owner in beat.slots.values()),
            answered_ms=beat.now_ms - self.cluster.offset_ms,
            offset_ms=self.cluster.offset_ms,
            is_answered=not self.cluster.trouble,
            unserved=sorted(self.cluster.wanted - served),
            dead=self.dead,
        )

    async def look(self) -> None:
        """Find the nodes that were declared dead, and have not come back."""
        if self.cluster:
            latest = {node.name: node for node in await self.cluster.nodes.known()}
            self.dead = sorted(name for name, node in latest.items() if node.state is NodeState.DEAD)

    async def list(self) -> list[NodeView]:
        """Return the latest start of each node, by name."""
        if not self.cluster:
            return []
        latest = {node.name: node for node in await self.cluster.nodes.known()}
        owners = self.cluster.last.slots if self.cluster.last else {}
        slots = Counter(owners.values())
        mine = {node.id: node for node in latest.values()}.get(self.cluster.nodes.me)
        jobs = await asyncio.to_thread(lambda live: Counter(owners.get(job.slot) for job in live), list(self.live))
        return [
            copied(
                NodeView,
                node,
                state=node.state.name.lower(),
                is_me=node is mine,
                slots=slots[node.id],
                jobs=jobs[node.id],
                differs=mine is not None and node.state in LIVING and node.folder != mine.folder,
            )
            for _, node in sorted(latest.items())
        ]

    async def change(self, name: str, change: NodeChange) -> None:
        """Have a node give its jobs, or take its share again; forget one that ended.  Raises Refused."""
        if not self.cluster:
            raise Refused("this daemon is alone on its database: nodes of a cluster share a PostgreSQL")
        nodes, known = self.cluster.nodes, await self.cluster.nodes.known()
        found = [node for node in known if node.name == name]
        if not found:
            close = Names(node.name for node in known).nearest(name)
            hint = f"did you mean {close!r}?" if close else "`spyweb nodes` lists them"
            raise Refused(f"no node is named {name[:80]!r}: {hint}")
        node, state = found[-1], found[-1].state.name.lower()
        if change is NodeChange.FORGET and node.state in LIVING:
            raise Refused(f"{name} is {state}: stop it first")
        if change is NodeChange.FORGET:
            await asyncio.gather(*(nodes.forget(each.id) for each in found))
        elif node.state not in LIVING:
            raise Refused(f"{name} is {state}: it takes jobs once it is started again")
        elif not await nodes.set_draining(node.id, change is NodeChange.DRAIN):
            raise Refused(f"{name} has just ended")
