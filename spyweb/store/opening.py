"""Open the store that `[store] url` names."""

from __future__ import annotations

from pathlib import Path

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.model import Durability
from spyweb.store.marker import Marker
from spyweb.store.model.entries import NO_HISTORY, HistoryRules
from spyweb.store.sqlite.store import Store, open_in_memory, open_store

SQLITE = "sqlite:///"
MEMORY = "memory:"


async def open_any(
    url: str,
    *,
    clock: Clock,
    durability: Durability = Durability.FULL,
    key: bytes | None = None,
    history: HistoryRules = NO_HISTORY,
    marker: Marker | None = None,
) -> Store:
    """Open the store, made if it is absent.  Memory needs no key: nothing of it reaches a disk."""
    if url == MEMORY:
        return await open_in_memory(clock=clock, history=history)
    if url.startswith(SQLITE):
        path = Path(url.removeprefix(SQLITE))
        if not path.parent.is_dir():
            raise StoreError(f"{path}: there is no folder {path.parent}: make it, or change [store] url")
        return await open_store(path, clock=clock, durability=durability, key=key, history=history, marker=marker)
    raise StoreError(f"{url[:80]}: expected {SQLITE!r} and the path of a file, or {MEMORY!r}")
