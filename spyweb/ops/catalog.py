"""The catalogue of all ops: importing this module imports each family, which fills it."""

from __future__ import annotations

from spyweb.ops import commands, crypto, data, file, fs, http, probes, sql, state, state_locks, store, system, tasks
from spyweb.ops.op import CATALOGUE as CATALOGUE
from spyweb.ops.op import Operation, OpFamily

MODULES = (store, state, state_locks, http, probes, fs, file, data, sql, commands, system)  # in the reference's order
PRIVATE = (tasks, crypto)  # no script calls their ops


def families() -> dict[OpFamily, list[Operation]]:
    """Return the public ops by family, in the order of the reference."""
    found: dict[OpFamily, list[Operation]] = {}
    for module in MODULES:
        of_module = [each for each in CATALOGUE.values() if each.handler.__module__ == module.__name__]
        found.setdefault(module.FAMILY, []).extend(each for each in of_module if not each.name.startswith("_"))
    return found
