"""Whose entries the commands about stored values mean, and what has them: a running daemon, or else the database."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec, TypeVar

import msgspec
import typer
from msgspec import Struct
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import complete_job, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, Project
from spyweb.errors import Refused
from spyweb.model import JobId, Value
from spyweb.store.interchange.lines import END, entry_line, parse_line
from spyweb.store.interchange.value_json import encode_value
from spyweb.store.model.entries import GLOBAL, STATE, PortableEntry, agent_namespace, job_namespace, scope_namespace
from spyweb.store.model.records import NewRecord
from spyweb.subjects.state.views import EntryDeleted, EntryView, EntryWritten, Imported, LockView, Moved, StateStats
from spyweb.views.jobs import find_job

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject
    from spyweb.store.sqlite.store import Store
    from spyweb.subjects.state.service import StateService

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Each = Callable[[PortableEntry], None]


class StatePlace(Struct, frozen=True, kw_only=True):
    """A project, and the namespace in it that is meant."""

    project: Project
    chosen: str | None  # the namespace that was asked for

    @property
    def namespace(self) -> str:
        return self.chosen or STATE

    @property
    def timezone(self) -> str:
        return self.project.settings.daemon.timezone

    @property
    def keeps_text(self) -> bool:
        """Return whether the namespace is one of store_* or global_store_*, which keep text alone."""
        return self.namespace == GLOBAL or self.namespace.startswith(job_namespace(JobId("")))

    def state(self) -> StoredState:
        return StoredState(self.project.stored())


def parse_format(text: str) -> Format:
    """Return the output format; `text` is sloth-runner's name for a table."""
    return Format.TABLE if text == "text" else Format(text)


StateOutput = Annotated[
    Format,
    typer.Option("-o", "--output", parser=parse_format, metavar="[table|json]", help="A table for people, or JSON."),
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


def _choice(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_CHOICES = {
    "job": _choice("job", None, Job),
    "scope": _choice("scope", None, Scope),
    "agent": _choice("agent", None, Agent),
    "shared": _choice("shared", False, Shared),
}


def find_place(context: typer.Context, chosen: dict[str, object]) -> StatePlace:
    """Return the namespace that was chosen.  Raises Refused when more than one is."""
    project = project_of(context)
    given = {name: value for name, value in chosen.items() if value not in (None, False)}
    if len(given) > 1:
        raise Refused("--job, --scope, --agent and --global exclude each other")
    for name, value in given.items():
        return StatePlace(project=project, chosen=_namespace(project, name, str(value)))
    return StatePlace(project=project, chosen=None)


def _namespace(project: Project, choice: str, name: str) -> str:
    if not name:
        raise Refused(f"--{choice}: can't be blank")
    match choice:
        case "job":
            # A job that is gone has its keys still.
            return job_namespace(find_job(project.backend().jobs(), name) or JobId(name))
        case "scope":
            return scope_namespace(name)
        case "agent":
            return agent_namespace(name)
        case _:
            return GLOBAL


def as_bytes(argument: str) -> bytes:
    """Return what was typed as bytes, also when it is not UTF-8."""
    return os.fsencode(argument)


def spelt(argument: str) -> str:
    """Return bytes as people are shown them."""
    return one_line(as_bytes(argument).decode("utf-8", "backslashreplace"))


def one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def agree(question: str, *, yes: bool) -> bool:
    """Ask whether to go on.  Raises Refused where nobody can be asked."""
    if yes or output.confirm(question):
        return True
    output.note("nothing was changed")
    return False


class StoredState:
    """The values are read without the lock, and changed under it: never behind a daemon that can't be reached."""

    def __init__(self, source: Backend) -> None:
        self._source = source

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> list[EntryView]:
        if isinstance(self._source, DaemonClient):
            target = _target("entries", namespace=namespace, prefix=prefix, limit=limit)
            return [msgspec.json.decode(line, type=EntryView) for line in _whole(self._source, target)]
        return _read(self._source, lambda service: _all(service.entries(namespace, prefix, limit)))

    def entry(self, namespace: str, key: bytes) -> EntryView | None:
        if isinstance(self._source, DaemonClient):
            target = _target("entry", namespace=namespace, key=key)
            return self._source.ask("GET", target, dict[str, EntryView | None])["entry"]
        return _read(self._source, lambda service: service.entry(namespace, key))

    def count(self, namespace: str, pattern: bytes) -> int:
        if isinstance(self._source, DaemonClient):
            target = _target("count", namespace=namespace, pattern=pattern)
            return self._source.ask("GET", target, dict[str, int], timeout=None)["count"]
        return _read(self._source, lambda service: service.count(namespace, pattern))

    def put(self, namespace: str, key: bytes, value: Value, ttl_ms: int | None) -> EntryWritten:
        if isinstance(self._source, DaemonClient):
            target = _target("entry", namespace=namespace, key=key, ttl_ms=ttl_ms)
            return self._source.ask("PUT", target, EntryWritten, body=encode_value(value))
        return _change(self._source, lambda service: service.put(namespace, key, value, ttl_ms))

    def delete(self, namespace: str, key: bytes) -> EntryDeleted:
        if isinstance(self._source, DaemonClient):
            target = _target("entry", namespace=namespace, key=key)
            return self._source.ask("DELETE", target, EntryDeleted, timeout=None)
        return _change(self._source, lambda service: service.delete(namespace, key))

    def clear(self, namespace: str, pattern: bytes) -> int:
        if isinstance(self._source, DaemonClient):
            target = _target("entries", namespace=namespace, pattern=pattern)
            return self._source.ask("DELETE", target, dict[str, int], timeout=None)["deleted"]
        return _change(self._source, lambda service: service.clear(namespace, pattern))

    def stats(self, namespace: str | None) -> StateStats:
        if isinstance(self._source, DaemonClient):
            return self._source.ask("GET", _target("stats", namespace=namespace), StateStats, timeout=None)
        found = _read(self._source, lambda service: service.stats(namespace))
        return replace(found, db_path=str(self._source.settings.store.path), backend="sqlite")

    def history(self, namespace: str, key: bytes, limit: int | None) -> list[EntryView]:
        if isinstance(self._source, DaemonClient):
            target = _target("history", namespace=namespace, key=key, limit=limit)
            return self._source.ask("GET", target, list[EntryView])
        return _read(self._source, lambda service: service.history(namespace, key, limit))

    def rollback(self, namespace: str, key: bytes, version: int) -> EntryWritten:
        if isinstance(self._source, DaemonClient):
            target = _target("rollback", namespace=namespace, key=key, version=version)
            return self._source.ask("POST", target, EntryWritten, timeout=None)
        return _change(self._source, lambda service: service.rollback(namespace, key, version))

    def locks(self) -> list[LockView]:
        if isinstance(self._source, DaemonClient):
            return self._source.ask("GET", _target("locks"), list[LockView])
        return _read(self._source, lambda service: service.locks())

    def break_lock(self, name: bytes) -> LockView | None:
        if isinstance(self._source, DaemonClient):
            return self._source.ask("DELETE", _target("locks", name=name), dict[str, LockView | None])["broken"]
        return _change(self._source, lambda service: service.break_lock(name))

    def export(self, namespace: str | None, each: Each) -> None:
        if isinstance(self._source, DaemonClient):
            for line in _whole(self._source, _target("export", namespace=namespace)):
                each(parse_line(line))
        else:
            _read(self._source, lambda service: _tell(service.export(namespace), each))

    def load(self, entries: Sequence[PortableEntry], *, dry_run: bool, each: Each) -> Imported:
        if isinstance(self._source, DaemonClient):
            target = _target("import", dry_run="true" if dry_run else None)
            return self._source.ask("POST", target, Imported, body=_entry_lines(entries, each), timeout=None)
        ask = _read if dry_run else _change
        found: Imported = ask(self._source, lambda service: service.load(entries, dry_run=dry_run))
        for portable in entries:
            each(portable)
        return found

    def add_records(self, job: JobId, records: Sequence[NewRecord]) -> int:
        if isinstance(self._source, DaemonClient):
            target, body = _target("records", job=job), msgspec.json.encode(records)
            return self._source.ask("POST", target, dict[str, int], body=body, timeout=None)["added"]
        return _change(self._source, lambda service: service.add_records(job, records))

    def move(self, old: str, new: str, *, force: bool) -> Moved:
        if isinstance(self._source, DaemonClient):
            target = _target("move", old=old, new=new, force="true" if force else None)
            return self._source.ask("POST", target, Moved, timeout=None)
        return _change(self._source, lambda service: service.move(old, new, force=force))


def _target(what: str, **parameters: bytes | str | int | None) -> str:
    return with_query(f"/api/state/{what}", **parameters)


def _whole(daemon: DaemonClient, target: str) -> Iterator[bytes]:
    """Yield the lines of a stream.  Raises Refused where it was truncated: it would look like a complete one."""
    for line in daemon.lines(target, timeout=None):
        if line.startswith(END):
            return
        yield line
    raise Refused(daemon.cut_off("it had sent everything"))


def _entry_lines(entries: Sequence[PortableEntry], each: Each) -> Iterator[bytes]:
    for portable in entries:
        yield entry_line(portable)
        each(portable)


def _read(offline: OfflineProject, ask: Callable[[StateService], Awaitable[T]]) -> T:
    """Ask the service over the database; before the first start, over an empty one."""

    import asyncio  # where a daemon runs, no command needs it

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
    from spyweb.subjects.state.service import StateService  # where a daemon runs, it is the one that needs it

    return StateService(store=store, clock=offline.clock, limits=offline.settings.state)


async def _all(entries: AsyncIterator[EntryView]) -> list[EntryView]:
    return [entry async for entry in entries]


async def _tell(entries: AsyncIterator[PortableEntry], each: Each) -> None:
    async for portable in entries:
        each(portable)
