"""Find cycles among jobs that name each other in `after`.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spyweb.model import JobId


def find_cycles(follows: Mapping[JobId, Sequence[JobId]]) -> list[list[JobId]]:
    """Return cycles, each in order: as many as it takes that without their jobs none is left.

    A walk along the links, with a stack of its own because a chain may be thousands of jobs long.  A link between two
    jobs that are in cycles already adds none: jobs that all name each other would be in millions.
    """
    cycles: list[list[JobId]] = []
    found: set[JobId] = set()
    done: set[JobId] = set()
    for start in follows:
        trail: dict[JobId, Iterator[JobId]] = {} if start in done else {start: iter(follows[start])}
        while trail:
            here = next(reversed(trail))
            following = next(trail[here], None)
            if following is None:
                done.add(here)
                del trail[here]
            elif following in trail:
                if here not in found or following not in found:
                    cycles.append(_from(list(trail), following))
                    found.update(cycles[-1])
            elif following not in done:
                trail[following] = iter(follows.get(following, ()))
    return cycles


def _from(trail: list[JobId], first: JobId) -> list[JobId]:
    return trail[trail.index(first) :]
