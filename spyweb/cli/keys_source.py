"""Find who answers for keys: the daemon that has the project, or without one its database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from spyweb.cli.project import Project
from spyweb.errors import Refused
from spyweb.store.keys_protocol import Scope
from spyweb.store.protocol import Store
from spyweb.views.keys import AuditView, KeyView, MadeKey

if TYPE_CHECKING:
    from spyweb.service.access import AccessService

T = TypeVar("T")

LOCAL, OFFLINE = "local", "no daemon"  # who it was, and how they came in, in the audit trail


class KeySource(Protocol):
    def keys(self) -> list[KeyView]: ...

    def add_key(self, name: str, scopes: Sequence[Scope], jobs: Sequence[str]) -> MadeKey: ...

    def revoke_key(self, name: str) -> bool: ...

    def audit_lines(self, *, limit: int) -> list[AuditView]: ...


def find_keys(project: Project) -> KeySource:
    daemon = project.find_daemon()
    if daemon:
        return daemon
    if project.settings.store.is_memory:
        raise Refused(f"no daemon runs in {project.root}, and what it kept in memory went with it")
    return LocalKeys(project)


class LocalKeys:
    """Reads and changes the database itself."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def keys(self) -> list[KeyView]:
        async def ask(store: Store) -> list[KeyView]:
            return (await self._service(store)).keys()

        return self._project.offline.read(ask, [])

    def add_key(self, name: str, scopes: Sequence[Scope], jobs: Sequence[str]) -> MadeKey:
        async def add(service: AccessService) -> MadeKey:
            return await service.add(name, scopes, jobs)

        return self._write("POST /api/keys", name, add)

    def revoke_key(self, name: str) -> bool:
        async def revoke(service: AccessService) -> bool:
            return await service.revoke(name)

        return self._write("DELETE /api/keys/{name}", name, revoke)

    def audit_lines(self, *, limit: int) -> list[AuditView]:
        from spyweb.service.audit import AuditService

        async def ask(store: Store) -> list[AuditView]:
            return await AuditService(store.audit, self._project.clock).lines(limit=limit)

        return self._project.offline.read(ask, [])

    def _write(self, action: str, target: str, ask: Callable[[AccessService], Awaitable[T]]) -> T:
        """Change something, and put it on record as a daemon does."""
        from spyweb.store.audit_protocol import NewAuditLine

        async def change(store: Store) -> T:
            changed = await ask(await self._service(store))
            at_ms = self._project.clock.now_ms()
            line = NewAuditLine(at_ms=at_ms, who=LOCAL, source=OFFLINE, action=action, target=target, status=200)
            await store.audit.add(line)
            return changed

        return self._project.offline.write(change)

    async def _service(self, store: Store) -> AccessService:
        from spyweb.service.access import AccessService  # where a daemon runs, it is the one that needs it

        service = AccessService(store.keys, self._project.clock)
        await service.load()
        return service
