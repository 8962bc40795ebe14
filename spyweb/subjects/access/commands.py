"""`spyweb keys`: make, list and revoke API keys, and show the audit trail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import answer_of
from spyweb.clock import RealClock
from spyweb.errors import Refused
from spyweb.store.model.access import AuditLine, NewAuditLine, Scope
from spyweb.subjects.access.views import KeyRevoked, KeyView, MadeKey, view_key

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject
    from spyweb.store.sqlite.store import Store
    from spyweb.web.access.keys import AccessService

T = TypeVar("T")

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.", show_default=False)]


def add(
    context: typer.Context,
    name: KeyName,
    scopes: Annotated[
        list[Scope], typer.Option("--scope", help="A right; run and state include read, admin all. Repeatable.")
    ] = [Scope.READ],  # noqa: B006 - typer reads it, nobody changes it
    jobs: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="PATTERN", help="Only these jobs, with * and ?. Repeatable.", show_default=False),
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Make a key, and show its token once.

    Clients send the token to the daemon's HTTP server; people sign in with it in a browser.
    """
    source, permitted = project_of(context).stored(), jobs or []
    if isinstance(source, DaemonClient):
        body = msgspec.json.encode({"name": name, "scopes": scopes, "jobs": permitted})
        made = source.ask("POST", "/api/keys", MadeKey, body=body)
    else:
        api_key = source.settings.server.api_key

        async def make(access: AccessService) -> MadeKey:
            is_first = access.is_open and not api_key
            new = await access.add(name, scopes, permitted)
            return MadeKey(key=view_key(new.key), token=new.token, is_first=is_first)

        made = _change(source, "POST /api/keys", name, make)
    output.tell(form, made.token, made)
    if form is Format.TABLE:
        output.note(f"this is the token of {made.key.name}: keep it, it is not shown again")
        if made.is_first:
            output.note("from now on a key is needed on this machine too: by browsers and programs, not by commands")


def list_keys(context: typer.Context, form: Output = Format.TABLE) -> None:
    """List the keys, without their tokens."""
    project = project_of(context)

    async def ask(store: Store) -> list[KeyView]:
        return [view_key(key) for key in (await _access(store)).all_keys()]

    def row(key: KeyView) -> dict[str, str]:
        return {
            "name": key.name,
            "token": f"{key.begins}...",
            "scopes": " ".join(key.scopes),
            "jobs": " ".join(key.jobs),
            "made": project.moment(key.created_ms),
            "last used": "never" if key.used_ms is None else project.moment(key.used_ms),
        }

    found = answer_of(project.stored(), "/api/keys", list[KeyView], ask, [])
    output.show_list(form, found, row, empty="no keys", cut=("jobs", "name"))


def revoke(context: typer.Context, name: KeyName, form: Output = Format.TABLE) -> None:
    """Revoke a key, which signs out its browsers."""
    source = project_of(context).stored()
    if isinstance(source, DaemonClient):
        is_revoked = source.ask("DELETE", f"/api/keys/{quote(name, safe='')}", KeyRevoked).revoked
    else:
        is_revoked = _change(source, "DELETE /api/keys/{name}", name, lambda access: access.revoke(name))
    if not is_revoked:
        raise Refused(f"there is no key {name[:80]!r}: `spyweb keys list` shows them")
    output.tell(form, f"{name} was revoked", {"name": name, "revoked": True})


def audit(
    context: typer.Context,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 50,
    form: Output = Format.TABLE,
) -> None:
    """Show the audit trail: who did what, newest first."""
    project = project_of(context)

    async def ask(store: Store) -> list[AuditLine]:
        from spyweb.web.access.audit import AuditService

        return await AuditService(store.audit, RealClock()).lines(limit=count)

    def row(line: AuditLine) -> dict[str, str]:
        return {
            "when": project.moment(line.at_ms),
            "who": line.who,
            "what": line.action,
            "job": line.job,
            "target": line.target,
            "status": str(line.status),
            "from": line.address or line.source,
            "times": str(line.times),
        }

    found = answer_of(project.stored(), with_query("/api/audit", limit=count), list[AuditLine], ask, [])
    output.show_list(form, found, row, empty="the audit trail is empty", cut=("target", "what", "job", "who"))


def _change(offline: OfflineProject, action: str, name: str, ask: Callable[[AccessService], Awaitable[T]]) -> T:
    """Change a key, and add the change to the audit trail as a daemon does."""

    async def change(store: Store) -> T:
        changed, now_ms = await ask(await _access(store)), RealClock().now_ms()
        line = NewAuditLine(at_ms=now_ms, who="local", source="no daemon", action=action, target=name, status=200)
        await store.audit.add(line)
        return changed

    return offline.write(change)


async def _access(store: Store) -> AccessService:
    from spyweb.web.access.keys import AccessService

    access = AccessService(store.keys, RealClock())
    await access.load()
    return access
