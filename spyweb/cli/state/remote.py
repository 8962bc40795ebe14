"""Stored values as a running daemon gives them; without one, state/local.py answers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.project import Project
from spyweb.errors import Refused
from spyweb.model import JobId, Value
from spyweb.store.interchange.lines import END, entry_line, parse_line
from spyweb.store.interchange.value_json import encode_value
from spyweb.store.model.entries import PortableEntry
from spyweb.store.model.records import NewRecord
from spyweb.views.state import ChangeView, EntryDeleted, EntryView, EntryWritten, Imported, LockView, Moved, StateStats

if TYPE_CHECKING:
    from spyweb.cli.state.local import LocalState

T = TypeVar("T")
State: TypeAlias = "RemoteState | LocalState"


def find_state(project: Project) -> State:
    """Return who answers for stored values: the daemon that has the project, or without one its database."""
    backend = project.stored()
    if isinstance(backend, DaemonClient):
        return RemoteState(backend)
    from spyweb.cli.state.local import LocalState  # where a daemon runs, it is the one that needs the service

    return LocalState(project)


class RemoteState:
    def __init__(self, daemon: DaemonClient) -> None:
        self._daemon = daemon

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> list[EntryView]:
        target = _target("entries", namespace=namespace, prefix=prefix, limit=limit)
        return [msgspec.json.decode(line, type=EntryView) for line in self._whole(target)]

    def entry(self, namespace: str, key: bytes) -> EntryView | None:
        target = _target("entry", namespace=namespace, key=key)
        return self._daemon.ask("GET", target, dict[str, EntryView | None])["entry"]

    def count(self, namespace: str, pattern: bytes) -> int:
        return self._ask("GET", _target("count", namespace=namespace, pattern=pattern), "count", int)

    def put(self, namespace: str, key: bytes, value: Value, ttl_ms: int | None) -> EntryWritten:
        target = _target("entry", namespace=namespace, key=key, ttl_ms=ttl_ms)
        return self._daemon.ask("PUT", target, EntryWritten, body=encode_value(value))

    def delete(self, namespace: str, key: bytes) -> EntryDeleted:
        target = _target("entry", namespace=namespace, key=key)
        return self._daemon.ask("DELETE", target, EntryDeleted, timeout=None)

    def clear(self, namespace: str, pattern: bytes) -> int:
        return self._ask("DELETE", _target("entries", namespace=namespace, pattern=pattern), "deleted", int)

    def stats(self, namespace: str | None) -> StateStats:
        return self._daemon.ask("GET", _target("stats", namespace=namespace), StateStats, timeout=None)

    def history(self, namespace: str, key: bytes, limit: int | None) -> list[EntryView]:
        target = _target("history", namespace=namespace, key=key, limit=limit)
        return self._daemon.ask("GET", target, list[EntryView])

    def rollback(self, namespace: str, key: bytes, version: int) -> EntryWritten:
        target = _target("rollback", namespace=namespace, key=key, version=version)
        return self._daemon.ask("POST", target, EntryWritten, timeout=None)

    def locks(self) -> list[LockView]:
        return self._daemon.ask("GET", _target("locks"), list[LockView])

    def break_lock(self, name: bytes) -> LockView | None:
        return self._daemon.ask("DELETE", _target("locks", name=name), dict[str, LockView | None])["broken"]

    def export(self, namespace: str | None, each: Callable[[PortableEntry], None]) -> None:
        for line in self._whole(_target("export", namespace=namespace)):
            each(parse_line(line))

    def load(
        self, entries: Sequence[PortableEntry], *, dry_run: bool, each: Callable[[PortableEntry], None]
    ) -> Imported:
        target = _target("import", dry_run="true" if dry_run else None)
        return self._daemon.ask("POST", target, Imported, body=_entry_lines(entries, each), timeout=None)

    def add_records(self, job: JobId, records: Sequence[NewRecord]) -> int:
        body = msgspec.json.encode(records)
        return self._daemon.ask("POST", _target("records", job=job), dict[str, int], body=body, timeout=None)["added"]

    def move(self, old: str, new: str, *, force: bool) -> Moved:
        target = _target("move", old=old, new=new, **({"force": "true"} if force else {}))
        return self._daemon.ask("POST", target, Moved, timeout=None)

    def watch(
        self, namespace: str | None, pattern: bytes, each: Callable[[ChangeView], None], began: Callable[[], None]
    ) -> None:
        """Yield changes until the daemon ends, which raises Refused."""
        lines = self._daemon.lines(_target("watch", namespace=namespace, pattern=pattern), timeout=None)
        next(lines, None)
        began()
        for line in lines:
            if line.strip():
                each(msgspec.json.decode(line, type=ChangeView))
        raise Refused(self._daemon.cut_off("the watch was stopped"))

    def _ask(self, method: str, target: str, field: str, kind: type[T]) -> T:
        """Return the one field of an answer, however long it takes."""
        return self._daemon.ask(method, target, dict[str, kind], timeout=None)[field]  # type: ignore[valid-type]

    def _whole(self, target: str) -> Iterator[bytes]:
        """Yield the lines of a stream.  Raises Refused where it was truncated: it would look like a complete one."""
        for line in self._daemon.lines(target, timeout=None):
            if line.startswith(END):
                return
            yield line
        raise Refused(self._daemon.cut_off("it had sent everything"))


def _target(what: str, **parameters: bytes | str | int | None) -> str:
    return with_query(f"/api/state/{what}", **parameters)


def _entry_lines(entries: Sequence[PortableEntry], each: Callable[[PortableEntry], None]) -> Iterator[bytes]:
    for portable in entries:
        yield entry_line(portable)
        each(portable)
