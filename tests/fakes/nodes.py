"""Two nodes of a cluster over fake services: each job is the first one's, or the second's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import cast
from unittest.mock import AsyncMock

from aiohttp import ClientSession
from msgspec.structs import replace

from spyweb.cluster.node import ClusterNode
from spyweb.model import JobId
from spyweb.ownership import Slot, slot_of
from spyweb.runs.live import LiveJobs
from spyweb.store.model.access import Scope
from spyweb.store.model.nodes import Beat, Node, NodeState
from spyweb.store.postgres.nodes import Nodes
from spyweb.web.access.forward import Forwarder, http_to_nodes
from spyweb.web.app import tcp_app
from tests.fakes.client import Client, client_of
from tests.fakes.daemon_service import BACKUP, PRICES, FakeDaemonService

ALPHA, BETA = 1, 2


def make_node(number: int = BETA, name: str = "beta", **changes: object) -> Node:
    node = Node(id=number, name=name, lease_ms=10_000, state=NodeState.ALIVE, started_ms=1_000, beat_ms=2_000)
    return replace(node, **changes)


class FakeRecord:
    """The nodes on record, and a story of what was changed."""

    def __init__(self, *nodes: Node) -> None:
        self.me, self.nodes, self.story, self.answers = ALPHA, list(nodes), list[str](), True

    async def known(self) -> list[Node]:
        return self.nodes

    async def set_draining(self, node: int, draining: bool) -> bool:
        self.story.append(f"{'drain' if draining else 'resume'} {node}")
        return self.answers

    async def forget(self, node: int) -> int:
        self.story.append(f"forget {node}")
        return 1


class FakeCluster(ClusterNode):
    def __init__(self, nodes: FakeRecord, last: Beat | None = None) -> None:
        self.nodes, self.record, self.last, self.offset_ms = cast("Nodes", nodes), nodes, last, 0


def two_on_record(**changes: object) -> FakeCluster:
    """Alpha answers, beta owns all that was ever made, and gamma, of two starts, is dead."""
    alpha, beta = make_node(ALPHA, "alpha", folder=b"1"), make_node(BETA, "beta", folder=b"1", labels=("gpu",))
    beta = replace(beta, **changes)
    gone = [make_node(n, "gamma", state=state) for n, state in ((3, NodeState.LEFT), (4, NodeState.DEAD))]
    slots: dict[Slot, int | None] = {slot_of(job): BETA for job in (PRICES, BACKUP)}
    slots |= {Slot("", 255): ALPHA, Slot("", 254): None, Slot("label:gpu", 0): 4}
    beat = Beat(now_ms=3_000, timeline="1", beats=1, living=(alpha, beta), slots=slots)
    return FakeCluster(FakeRecord(alpha, beta, *gone), beat)


@dataclass
class TwoNodes:
    """Clients of both, and tokens for alpha by their scopes."""

    alpha: FakeDaemonService
    beta: FakeDaemonService
    owners: dict[Slot, Node]  # as alpha knows them
    client: Client
    beta_client: Client
    stack: AsyncExitStack
    tokens: dict[str, str]

    def put(self, job: JobId, node: Node | None) -> None:
        """Have alpha know this owner of a job."""
        slot = slot_of(job)
        self.owners.pop(slot, None)
        if node:
            self.owners[slot] = node


def forwarding(service: FakeDaemonService, me: int, owners: Mapping[Slot, Node], http: ClientSession) -> None:
    service.forwarder = Forwarder(
        me=me,
        owner_of=owners.get,
        live=service.live,
        find_run=service.past.find,
        look=AsyncMock(),
        access=service.access,
        key=b"k" * 32,
        http=http,
        clock=service.clock,
    )


@asynccontextmanager
async def two_nodes(*, keyed: bool = True) -> AsyncIterator[TwoNodes]:
    """Serve both; all jobs are beta's."""
    alpha, beta, owners = FakeDaemonService(), FakeDaemonService(), dict[Slot, Node]()
    async with http_to_nodes() as http, AsyncExitStack() as stack:
        forwarding(alpha, ALPHA, owners, http)
        forwarding(beta, BETA, {}, http)
        give_away(alpha.live)
        tokens = {}
        if keyed:
            await beta.access.add("other", [Scope.READ])
            scopes = {"read": [Scope.READ], "run": [Scope.RUN], "limited": list(Scope), "admin": [Scope.ADMIN]}
            for name, those in scopes.items():
                jobs = [BACKUP] if name == "limited" else []
                tokens[name] = (await alpha.access.add(name, those, jobs)).token
        client, other = [await stack.enter_async_context(client_of(tcp_app(each))) for each in (alpha, beta)]
        found = TwoNodes(alpha, beta, owners, client, other, stack, tokens)
        for job in (PRICES, BACKUP):
            found.put(job, make_node(url=str(other.make_url(""))))
        yield found


def give_away(live: LiveJobs) -> None:
    live.ownership.owned = set()
    for job in live:
        job.mine = False
