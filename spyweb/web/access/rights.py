"""The rights that a request may need."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Right(StrEnum):
    """A right that a request needs and a key may have."""

    READ = "read"
    RUN = "run"  # start, stop, pause and resume jobs
    STATE = "state"  # change what is stored
    ADMIN = "admin"


ALL = frozenset(Right)
PUBLIC = None  # in place of a right: anybody may ask

_WITH: Mapping[Right, frozenset[Right]] = {
    Right.READ: frozenset({Right.READ}),
    Right.RUN: frozenset({Right.READ, Right.RUN}),
    Right.STATE: frozenset({Right.READ, Right.STATE}),
    Right.ADMIN: ALL,
}


def rights_of(*scopes: Right) -> frozenset[Right]:
    """Return all rights that come with these."""
    return frozenset().union(*(_WITH[scope] for scope in scopes))
