"""Open a store that several nodes share: on PostgreSQL, which needs an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spyweb.clock import Clock
from spyweb.errors import Refused, StoreError
from spyweb.settings.sections import Settings

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store


def need_postgres() -> None:
    """Raise StoreError where what PostgreSQL needs is not installed."""
    try:
        import spyweb.store.postgres.server  # noqa: F401 - it takes memory, which few need
    except ImportError as error:
        raise StoreError("[store] url: PostgreSQL needs an extra: pip install 'spyweb[postgres]'") from error


async def open_shared(settings: Settings, *, clock: Clock, key: bytes | None, read_only: bool = False) -> Store:
    """Open the store on PostgreSQL that the settings name, as `open_store` does."""
    need_postgres()
    from spyweb.store.postgres.store import open_postgres, server_of

    place, how, past = server_of(settings), settings.store.durability, settings.state.history
    return await open_postgres(place, clock=clock, durability=how, read_only=read_only, key=key, history=past)


async def refuse_beside_nodes(store: Store) -> None:
    """Raise Refused while a node is alive, which runs the project's jobs."""
    for node in await store.nodes.living() if store.nodes else ():
        where = f"`spyweb --url {node.url}` asks it" if node.url else "do it there"
        raise Refused(f"the node {node.name} is up, and the jobs are run by nodes: {where}")
