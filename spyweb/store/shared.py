"""Open a store that several nodes share: on PostgreSQL, which few need, so that what it needs is an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spyweb.clock import Clock
from spyweb.errors import StoreError
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

    return await open_postgres(
        server_of(settings),
        clock=clock,
        durability=settings.store.durability,
        read_only=read_only,
        key=key,
        history=settings.state.history,
    )
