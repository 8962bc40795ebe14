"""A server with a key of each kind, for tests of who may come in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from spyweb.store.model.access import Scope
from spyweb.web.app import Site, tcp_app
from tests.fakes.client import Client, client_of
from tests.fakes.daemon_service import BACKUP, PRICES, FakeDaemonService
from tests.fakes.incidents import fail

OWNER = "clé-secrète"
COOKIE = "spyweb_0"  # the port of an app that a test makes


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """A server, and tokens by what they permit: a scope, or `limited` (to prices), `other` (to backup), `revoked`."""

    client: Client
    service: FakeDaemonService
    tokens: Mapping[str, str]

    async def status(self, method: str, path: str, who: str | None = None, **headers: str) -> int:
        return (await self.ask(method, path, who, **headers))[0]

    async def ask(self, method: str, path: str, who: str | None = None, **headers: str) -> tuple[int, str]:
        """Ask with a key; `who` is its kind.  Of an answer without end only the head is read."""
        if who is not None:
            headers["X-SpyWeb-Key"] = self.tokens.get(who, who)
        async with self.client.request(method, path, headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.text() if answer.status >= 400 else ""

    async def json(self, path: str, who: str) -> Any:
        async with self.client.get(path, headers={"X-SpyWeb-Key": self.tokens[who]}) as answer:
            return await answer.json()

    def signed_in(self, who: str) -> dict[str, str]:
        """Begin a session; return the headers of its browser."""
        found = self.service.access.admit_key(self.tokens[who])
        assert found
        return {"Cookie": f"{COOKIE}={self.service.access.sign_in(found)}"}


@asynccontextmanager
async def open_doors(api_key: str | None = OWNER, site: Site | None = None) -> AsyncIterator[Doors]:
    service = FakeDaemonService(api_key=api_key)
    kinds: dict[str, tuple[list[Scope], list[str]]] = {scope.value: ([scope], []) for scope in Scope}
    kinds |= {"limited": (list(Scope), [PRICES]), "other": (list(Scope), [BACKUP]), "revoked": ([Scope.ADMIN], [])}
    tokens = {kind: (await service.access.add(kind, *given)).token for kind, given in kinds.items()}
    await service.access.revoke("revoked")
    await fail(service.stored_incidents, PRICES)
    async with client_of(tcp_app(service, site)) as client:
        yield Doors(client=client, service=service, tokens={**tokens, "owner": api_key or ""})
