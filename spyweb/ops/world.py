"""What an op may reach: the World, built once by the daemon, and the Call, which says who is asking."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from spyweb.clock import Clock
from spyweb.model import MIB, JobId, RunId
from spyweb.ops.network.request import Http
from spyweb.ops.sources import Sources
from spyweb.store.protocol import Store


@dataclass(frozen=True, slots=True)
class Metrics:
    """Ops since start, by name."""

    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)  # refused, failed, or (store_*) failed and carried on


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that outlives a run."""

    store: Store
    clock: Clock
    http: Http
    sources: Sources
    metrics: Metrics = field(default_factory=Metrics)


@dataclass(slots=True)
class Tally:
    """What is counted for one run while it lasts."""

    storage_errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The first parameter of every op: the run that asks, and the world."""

    world: World
    job: JobId
    run: RunId
    generation: int
    folder: str  # the job's, relative to the project root
    memory_limit: int = 64 * MIB  # bytes, of the job's VM: nothing larger could be handed to it
    tally: Tally = field(default_factory=Tally)
