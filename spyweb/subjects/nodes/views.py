"""The nodes of a cluster, as pages, commands and the API show them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class NodeChange(StrEnum):
    DRAIN = "drain"  # it gives its jobs to the others
    RESUME = "resume"
    FORGET = "forget"  # one that ended


class NodeView(Struct, frozen=True, kw_only=True):
    """The latest start of a node."""

    name: str
    id: int  # of this start
    state: str  # "alive", "draining", "left" or "dead"
    is_me: bool = False  # the node that answers
    version: str = ""
    url: str = ""  # where other nodes reach it
    labels: Sequence[str] = ()
    is_standby: bool = False
    slots: int = 0  # that it owns
    jobs: int = 0  # in them
    started_ms: int
    beat_ms: int  # the last one
    differs: bool = False  # its files of jobs are not those of the node that answers


class NodeChanged(Struct, frozen=True, kw_only=True):
    """A node that was changed."""

    name: str
    change: NodeChange
