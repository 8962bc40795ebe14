"""Every op there is: importing this module imports each family, and so fills the catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.ops import files, http, notify, sql, state, state_locks, store, system, tls
from spyweb.ops.op import CATALOGUE, Operation

FAMILIES = (files, http, notify, sql, state, state_locks, store, system, tls)


def names() -> list[str]:
    """The names that a worker is told of, private ones (`_…`) included."""
    return sorted(CATALOGUE)


def operations() -> Mapping[str, Operation]:
    return CATALOGUE
