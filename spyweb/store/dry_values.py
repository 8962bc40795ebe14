"""The stored values as a dry run sees them: its writes are kept for that run alone, and dropped with it."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

from spyweb.clock import Clock
from spyweb.store.encoding import encode
from spyweb.store.encryption import PLAIN
from spyweb.store.model.entries import Entry, Leave, Order, Put, Transform
from spyweb.store.patterns import compile_pattern
from spyweb.store.sqlite.changes import EntryContext, Row, decide, entry_of, is_live
from spyweb.store.sqlite.values import Values

T = TypeVar("T")
P = ParamSpec("P")


def as_task(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Future[T]]:
    """Have a coroutine begin as it is called, since an op hands on a future."""
    return lambda *arguments, **named: get_running_loop().create_task(work(*arguments, **named))


class DryValues(Values):
    """Answers what scripts ask of Values; the history, figures and list of scopes are those of the store."""

    def __init__(self, stored: Values, clock: Clock) -> None:
        self.__dict__.update(vars(stored), _caches=False)
        self._stored, self._clock = stored, clock
        self._own: dict[tuple[str, bytes], Row | None] = {}  # what the run has read or written

    @as_task
    async def transform(self, namespace: str, key: bytes, change: Transform, **_: object) -> Any:
        place = namespace, key
        if place not in self._own:
            entry = await self._stored.read(namespace, key)
            self._own.setdefault(place, row_of(entry) if entry else None)
        effect = decide(EntryContext(PLAIN, namespace, key, self._clock.now_ms()), self._own[place], change)
        if effect.changes:
            self._own[place] = effect.row
        return effect.result

    def read(self, namespace: str, key: bytes) -> Future[Any]:
        return self.transform(namespace, key, Leave)

    def get(self, namespace: str, key: bytes) -> Future[Any]:
        return self.transform(namespace, key, lambda entry: Leave(entry and entry.value))

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[Any]:
        return self.transform(namespace, key, lambda entry: Put(entry.value, at_ms, True) if entry else Leave(False))

    @as_task
    async def keys(self, namespace: str, pattern: bytes = b"*", **options: Any) -> list[bytes]:
        stored = await self._stored.keys(namespace, pattern, **options)
        matches = compile_pattern(pattern).matches
        own = [key for key, _ in self._own_in(namespace) if matches(key)]
        return sorted([*own, *(key for key in stored if (namespace, key) not in self._own)])

    @as_task
    async def clear(self, namespace: str, pattern: bytes = b"*", **_: object) -> int:
        keys = await self.keys(namespace, pattern)
        self._own.update(dict.fromkeys(((namespace, key) for key in keys), None))
        return len(keys)

    @as_task
    async def gather(self, namespace: str, prefix: bytes, into: Callable[..., T], **options: Any) -> T:
        stored = await self._stored.gather(namespace, prefix, list, **options)
        items = [item for item in stored if (namespace, item[0]) not in self._own]
        items += [item for item in self._own_in(namespace) if item[0].startswith(prefix)]
        is_by_age = options.get("order") is Order.CREATED
        items.sort(key=lambda item: item[1].created_ms if is_by_age else item[0])
        return into(iter(items))

    def _own_in(self, namespace: str) -> Iterator[tuple[bytes, Entry]]:
        now_ms = self._clock.now_ms()
        for (own_namespace, key), row in self._own.items():
            if own_namespace == namespace and row and is_live(row, now_ms):
                yield key, entry_of(PLAIN, namespace, key, row)


def row_of(entry: Entry) -> Row:
    return Row(*encode(entry.value), entry.expires_ms, entry.version, entry.created_ms, entry.updated_ms)
