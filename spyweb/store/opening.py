"""Open the store that the settings name: a file, one in memory, or one that nodes share, whose driver is an extra."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spyweb.clock import Clock
from spyweb.errors import Refused, StoreError
from spyweb.settings.sections import Settings
from spyweb.store.encryption import find_key
from spyweb.store.marker import Marker

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store


async def open_any(settings: Settings, *, clock: Clock, marker: Marker, read_only: bool = False) -> Store:
    """Open the store, made if it is absent; one in memory needs no key."""
    from spyweb.store.sqlite.store import open_in_memory, open_store  # slow to import: some commands only may need it

    store, history = settings.store, settings.state.history
    if store.is_memory:
        return await open_in_memory(clock=clock, history=history)
    how, key = store.durability, key_of(settings)
    if store.is_postgres:
        need_postgres()
        from spyweb.store.postgres.store import open_postgres, server_of

        place = server_of(settings)
        return await open_postgres(place, clock=clock, durability=how, read_only=read_only, key=key, history=history)
    path = store.path
    if not path.parent.is_dir():
        raise StoreError(f"{path}: there is no folder {path.parent}: make it, or change [store] url")
    return await open_store(
        path, clock=clock, durability=how, read_only=read_only, key=key, history=history, marker=marker
    )


def key_of(settings: Settings) -> bytes | None:
    """Return the key that values are encrypted with, or None.  Raises StoreError or NoAccess."""
    key_file = settings.store.key_file
    return find_key(key_file, settings.root, os.environ) if key_file else None


def need_postgres() -> None:
    """Raise StoreError where what PostgreSQL needs is not installed."""
    try:
        import spyweb.store.postgres.server  # noqa: F401 - it takes memory, which few need
    except ImportError as error:
        raise StoreError("[store] url: PostgreSQL needs an extra: pip install 'spyweb[postgres]'") from error


async def refuse_beside_nodes(store: Store) -> None:
    """Raise Refused while a node is alive, which runs the project's jobs."""
    for node in await store.nodes.living() if store.nodes else ():
        where = f"`spyweb --url {node.url}` asks it" if node.url else "do it there"
        raise Refused(f"the node {node.name} is up, and the jobs are run by nodes: {where}")
