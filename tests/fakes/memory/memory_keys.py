"""Keys and the sessions of browsers, in dictionaries."""

from __future__ import annotations

from asyncio import Future
from dataclasses import asdict, replace

from spyweb.store.keys_protocol import AccessKey, BrowserSession, KeyId, NewKey
from tests.fakes.memory.memory_executor import ImmediateExecutor


class MemoryKeys:
    def __init__(self, executor: ImmediateExecutor) -> None:
        self._executor = executor
        self._link_key = b"k" * 32
        self._keys: dict[KeyId, AccessKey] = {}
        self._sessions: dict[bytes, BrowserSession] = {}

    def all(self) -> Future[list[AccessKey]]:
        return self._executor.read(lambda: sorted(self._keys.values(), key=lambda key: key.name))

    def add(self, key: NewKey) -> Future[AccessKey | None]:
        return self._executor.write(self._add, key)

    def remove(self, name: str) -> Future[bool]:
        return self._executor.write(self._remove, name)

    def used(self, key: KeyId, at_ms: int) -> Future[None]:
        return self._executor.write(self._used, key, at_ms)

    def sessions(self) -> Future[list[BrowserSession]]:
        return self._executor.read(lambda: sorted(self._sessions.values(), key=lambda each: (each.seen_ms, each.hash)))

    def put_session(self, session: BrowserSession) -> Future[None]:
        return self._executor.write(self._put_session, session)

    def end_sessions(self, hashes: list[bytes]) -> Future[None]:
        return self._executor.write(self._end_sessions, hashes)

    def link_key(self) -> Future[bytes]:
        return self._executor.write(lambda: self._link_key)

    def _add(self, new: NewKey) -> AccessKey | None:
        if any(new.name == key.name or new.handle == key.handle for key in self._keys.values()):
            return None
        key = AccessKey(id=KeyId(max(self._keys, default=0) + 1), **asdict(new))
        self._keys[key.id] = key
        return key

    def _remove(self, name: str) -> bool:
        gone = [key.id for key in self._keys.values() if key.name == name]
        for key in gone:
            del self._keys[key]
        self._end_sessions([each.hash for each in self._sessions.values() if each.key in gone])
        return bool(gone)

    def _used(self, key: KeyId, at_ms: int) -> None:
        if key in self._keys:
            self._keys[key] = replace(self._keys[key], used_ms=at_ms)

    def _put_session(self, session: BrowserSession) -> None:
        if session.key is None or session.key in self._keys:
            self._sessions[session.hash] = session

    def _end_sessions(self, hashes: list[bytes]) -> None:
        for each in hashes:
            self._sessions.pop(each, None)
