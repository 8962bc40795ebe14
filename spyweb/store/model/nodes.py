"""The nodes of a cluster, as they are on record."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from spyweb.ownership import Slot


class NodeState(Enum):
    ALIVE = "a"
    DRAINING = "d"  # it gives its slots away, and ends
    LEFT = "l"
    DEAD = "x"  # declared so by another node: it writes nothing any more


class Node(Struct, frozen=True, kw_only=True):
    """One start of a daemon; a later start under the same name is another node."""

    id: int = 0  # of one that joins
    name: str
    url: str = ""  # where other nodes reach its server; empty: they do not
    version: str = ""
    folder: bytes = b""  # a digest of the files of all its jobs
    labels: tuple[str, ...] = ()
    is_standby: bool = False  # it takes slots only while no other node lives
    only_labels: bool = False  # it takes no slots of the pool for every node
    lease_ms: int
    state: NodeState = NodeState.ALIVE
    started_ms: int = 0
    beat_ms: int = 0
    offset_ms: int = 0  # of PostgreSQL's clock to that of its machine, as of the beat before


class Beat(Struct, frozen=True, kw_only=True):
    """The answer to a node that says that it is alive."""

    now_ms: int  # the database's clock
    timeline: str  # of the database: another one means that it failed over
    beats: int  # of this node, on record
    living: tuple[Node, ...]  # by id, this one among them
    slots: dict[Slot, int | None]  # every slot there is, and its owner
