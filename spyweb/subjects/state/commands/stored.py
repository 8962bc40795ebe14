"""Find the namespace that a command about stored values names, and ask the daemon or the database for its entries."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec, TypeVar

import msgspec
import typer
from msgspec import Struct
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.client import PATIENCE, Body, DaemonClient, with_query
from spyweb.cli.options import complete_job, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, Project
from spyweb.errors import Refused
from spyweb.model import JobId, Value
from spyweb.store.interchange.lines import END, entry_line, parse_line
from spyweb.store.interchange.value_json import encode_value
from spyweb.store.model.entries import GLOBAL, STATE, PortableEntry, agent_namespace, job_namespace, scope_namespace
from spyweb.store.model.records import NewRecord
from spyweb.subjects.state import views
from spyweb.views.jobs import find_job

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject
    from spyweb.store.sqlite.store import Store
    from spyweb.subjects.state.service import StateService

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Each = Callable[[PortableEntry], None]
Query = Mapping[str, bytes | str | int | None]
SOON = ("PUT entry", "GET history", "GET locks", "DELETE locks")  # answered fast, however much is stored


class StatePlace(Struct, frozen=True, kw_only=True):
    """A project, and the namespace that a command names."""

    project: Project
    chosen: str | None  # the namespace of the options, if one was given

    @property
    def namespace(self) -> str:
        return self.chosen or STATE

    @property
    def timezone(self) -> str:
        return self.project.settings.daemon.timezone

    def state(self) -> StoredState:
        return StoredState(self.project.stored())


def parse_format(text: str) -> Format:
    """Return the output format; `text` is sloth-runner's name for a table."""
    return Format.TABLE if text == "text" else Format(text)


StateOutput = Annotated[
    Format, typer.Option("-o", "--output", parser=parse_format, metavar="[table|json]", help="Table or JSON.")
]
Compat = Annotated[bool, typer.Option("--compat", help="JSON in sloth-runner's shape.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The entry's key.")]
Pattern = Annotated[str, typer.Argument(metavar="PATTERN", help="Which keys: * is any run, ? one character.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")]

Job = Annotated[
    str | None, typer.Option("--job", metavar="ID", help="A job's store_* keys.", autocompletion=complete_job)
]
Scope = Annotated[str | None, typer.Option("--scope", metavar="NAME", help="A scope of state.set{scope=...}.")]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The state of this agent.")]
Shared = Annotated[bool, typer.Option("--global", help="The global_store_* keys.")]


def placed(command: Callable[Concatenate[typer.Context, StatePlace, P], R]) -> Callable[..., R]:
    """Give a command the four options that choose a namespace; it is called with one StatePlace."""

    @wraps(command)
    def run(context: typer.Context, *args: P.args, **options: P.kwargs) -> R:
        chosen = {name: options.pop(name) for name in _CHOICES}
        return command(context, find_place(context, chosen), *args, **options)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "place"]
    parameters = [*own, *_CHOICES.values()]
    # typer reads these two.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_OPTIONS = (("job", None, Job), ("scope", None, Scope), ("agent", None, Agent), ("shared", False, Shared))
_CHOICES = {
    name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in _OPTIONS
}


def find_place(context: typer.Context, chosen: dict[str, object]) -> StatePlace:
    """Return the namespace that was chosen.  Raises Refused when more than one is."""
    project = project_of(context)
    given = [(choice, str(value)) for choice, value in chosen.items() if value not in (None, False)]
    if len(given) > 1:
        raise Refused("--job, --scope, --agent and --global exclude each other")
    namespace = None
    for choice, name in given:
        if not name:
            raise Refused(f"--{choice}: can't be blank")
        if choice == "job":  # one that was removed keeps its keys
            namespace = job_namespace(find_job(project.backend().jobs(), name) or JobId(name))
        else:
            namespace = {"scope": scope_namespace(name), "agent": agent_namespace(name)}.get(choice, GLOBAL)
    return StatePlace(project=project, chosen=namespace)


def as_bytes(argument: str) -> bytes:
    """Return an argument as bytes, also when it is not UTF-8."""
    return os.fsencode(argument)


def spelt(argument: str) -> str:
    return one_line(as_bytes(argument).decode("utf-8", "backslashreplace"))


def one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def agree(question: str, *, yes: bool) -> bool:
    """Ask whether to continue.  Raises Refused when nobody can be asked."""
    if yes or output.confirm(question):
        return True
    output.note("nothing was changed")
    return False


class StoredState:
    """Reads values without the lock and changes them under it, so never beside a daemon that can't be reached."""

    def __init__(self, source: Backend) -> None:
        self._source = source

    def _ask(
        self, route: str, kind: type[T], query: Query, ask: Callable[[StateService], Awaitable[T]], body: Body = None
    ) -> T:
        """Ask the daemon by one of its routes, or else the service over the database for the same."""
        method, _, what = route.partition(" ")
        if isinstance(self._source, DaemonClient):
            timeout = PATIENCE if route in SOON else None
            return self._source.ask(method, _target(what, **query), kind, body=body, timeout=timeout)
        return _read(self._source, ask) if method == "GET" else _change(self._source, ask)

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> list[views.EntryView]:
        if isinstance(self._source, DaemonClient):
            target = _target("entries", namespace=namespace, prefix=prefix, limit=limit)
            return [msgspec.json.decode(line, type=views.EntryView) for line in _whole(self._source, target)]

        async def gather(state: StateService) -> list[views.EntryView]:
            return [entry async for entry in state.entries(namespace, prefix, limit)]

        return _read(self._source, gather)

    def entry(self, namespace: str, key: bytes) -> views.EntryView | None:
        if isinstance(self._source, DaemonClient):
            return self._source.ask("GET", _target("entry", namespace=namespace, key=key), views.EntryFound).entry
        return _read(self._source, lambda state: state.entry(namespace, key))

    def put(self, namespace: str, key: bytes, value: Value, ttl_ms: int | None) -> views.EntryWritten:
        query: Query = {"namespace": namespace, "key": key, "ttl_ms": ttl_ms}
        body = encode_value(value)
        return self._ask(
            "PUT entry", views.EntryWritten, query, lambda state: state.put(namespace, key, value, ttl_ms), body
        )

    def count(self, namespace: str, pattern: bytes) -> views.EntriesCounted:
        query: Query = {"namespace": namespace, "pattern": pattern}
        return self._ask("GET count", views.EntriesCounted, query, lambda state: state.count(namespace, pattern))

    def clear(self, namespace: str, pattern: bytes) -> views.EntriesCleared:
        query: Query = {"namespace": namespace, "pattern": pattern}
        return self._ask("DELETE entries", views.EntriesCleared, query, lambda state: state.clear(namespace, pattern))

    def delete(self, namespace: str, key: bytes) -> views.EntryDeleted:
        query: Query = {"namespace": namespace, "key": key}
        return self._ask("DELETE entry", views.EntryDeleted, query, lambda state: state.delete(namespace, key))

    def history(self, namespace: str, key: bytes, limit: int | None) -> list[views.EntryView]:
        query: Query = {"namespace": namespace, "key": key, "limit": limit}
        return self._ask(
            "GET history", list[views.EntryView], query, lambda state: state.history(namespace, key, limit)
        )

    def rollback(self, namespace: str, key: bytes, version: int) -> views.EntryWritten:
        query: Query = {"namespace": namespace, "key": key, "version": version}
        return self._ask(
            "POST rollback", views.EntryWritten, query, lambda state: state.rollback(namespace, key, version)
        )

    def locks(self) -> list[views.LockView]:
        return self._ask("GET locks", list[views.LockView], {}, lambda state: state.locks())

    def break_lock(self, name: bytes) -> views.LockBroken:
        return self._ask("DELETE locks", views.LockBroken, {"name": name}, lambda state: state.break_lock(name))

    def move(self, old: str, new: str, *, force: bool) -> views.Moved:
        query: Query = {"old": old, "new": new, "force": "true" if force else None}
        return self._ask("POST move", views.Moved, query, lambda state: state.move(old, new, force=force))

    def stats(self, namespace: str | None) -> views.StateStats:
        found = self._ask("GET stats", views.StateStats, {"namespace": namespace}, lambda state: state.stats(namespace))
        if isinstance(self._source, DaemonClient):
            return found
        store = self._source.settings.store
        place, kind = (store.url, "postgresql") if store.is_postgres else (str(store.path), "sqlite")
        return replace(found, db_path=place, backend=kind)

    def add_records(self, job: JobId, records: Sequence[NewRecord]) -> views.RecordsAdded:
        body = msgspec.json.encode(records)
        return self._ask(
            "POST records", views.RecordsAdded, {"job": job}, lambda state: state.add_records(job, records), body
        )

    def export(self, namespace: str | None, each: Each) -> None:
        if isinstance(self._source, DaemonClient):
            for line in _whole(self._source, _target("export", namespace=namespace)):
                each(parse_line(line))
            return

        async def tell(state: StateService) -> None:
            async for portable in state.export(namespace):
                each(portable)

        _read(self._source, tell)

    def load(self, entries: Sequence[PortableEntry], *, dry_run: bool, each: Each) -> views.Imported:
        def lines() -> Iterator[bytes]:
            for portable in entries:
                yield entry_line(portable)
                each(portable)

        if isinstance(self._source, DaemonClient):
            target = _target("import", dry_run="true" if dry_run else None)
            return self._source.ask("POST", target, views.Imported, body=lines(), timeout=None)
        ask = _read if dry_run else _change
        found: views.Imported = ask(self._source, lambda state: state.load(entries, dry_run=dry_run))
        for portable in entries:
            each(portable)
        return found


def _target(what: str, **parameters: bytes | str | int | None) -> str:
    return with_query(f"/api/state/{what}", **parameters)


def _whole(daemon: DaemonClient, target: str) -> Iterator[bytes]:
    """Yield the lines of a stream.  Raises Refused when it was truncated: it would look complete."""
    for line in daemon.lines(target, timeout=None):
        if line.startswith(END):
            return
        yield line
    raise Refused(daemon.cut_off("the end of its answer"))


def _read(offline: OfflineProject, ask: Callable[[StateService], Awaitable[T]]) -> T:
    """Ask the service over the database; before the first start, over an empty one."""
    import asyncio  # only needed when no daemon runs

    async def answer(store: Store) -> tuple[T]:
        return (await ask(_service(offline, store)),)

    async def nothing_yet() -> tuple[T]:
        from spyweb.store.sqlite.store import open_in_memory

        store = await open_in_memory(clock=offline.clock)
        try:
            return await answer(store)
        finally:
            await store.close()

    found = offline.read(answer, None) or asyncio.run(nothing_yet())
    return found[0]


def _change(offline: OfflineProject, ask: Callable[[StateService], Awaitable[T]]) -> T:
    return offline.change_values(lambda store: ask(_service(offline, store)))


def _service(offline: OfflineProject, store: Store) -> StateService:
    from spyweb.subjects.state.service import StateService  # only needed when no daemon runs

    return StateService(store=store, clock=offline.clock, limits=offline.settings.state)
