"""Which changes are watched: asked for each write, so it must cost nothing where nobody watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spyweb.store.patterns import Pattern, compile_pattern
from spyweb.store.protocol import ChangeKind, Watch


class Wanted(NamedTuple):
    pattern: Pattern
    kinds: frozenset[ChangeKind]


class Subscriptions:
    """Never changes once made, so that any thread may ask it."""

    def __init__(self, watches: Sequence[Watch] = ()) -> None:
        self._exact: dict[str, list[Wanted]] = {}
        self._prefixes: dict[str, list[Wanted]] = {}
        for watch in watches:
            group = self._prefixes if watch.is_prefix else self._exact
            group.setdefault(watch.namespace, []).append(Wanted(compile_pattern(watch.key), watch.kinds))
        self.is_empty = not watches

    def of_namespace(self, namespace: str) -> list[Wanted]:
        if self.is_empty:
            return []
        found = list(self._exact.get(namespace, ()))
        for prefix, watches in self._prefixes.items():
            if namespace.startswith(prefix):
                found += watches
        return found

    def of_key(self, namespace: str, key: bytes) -> frozenset[ChangeKind]:
        return kinds_wanted(self.of_namespace(namespace), key)


def kinds_wanted(watches: Sequence[Wanted], key: bytes) -> frozenset[ChangeKind]:
    wanted: frozenset[ChangeKind] = frozenset()
    for watch in watches:
        if not watch.kinds <= wanted and watch.pattern.matches(key):
            wanted |= watch.kinds
    return wanted
