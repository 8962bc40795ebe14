"""Access over HTTP: keys, and the sessions of browsers that signed in with a key.

All of them are in memory while a daemon runs, and every change passes through this module: a key that is revoked is
refused at the next request, without a query of the store.  Changes of another node are read soon after.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import STORE_REFUSED, Refused
from spyweb.limits import ACCESS_KEYS, KEY_JOBS, PATTERN, SESSIONS, SESSIONS_OF_KEY
from spyweb.logs.output import note_refused
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.store.model.access import AccessKey, BrowserSession, KeyId, NewKey, Scope
from spyweb.store.patterns import is_within
from spyweb.store.sqlite.keys import AccessKeys

IDLE_MS = 12 * HOUR_MS  # a session ends when its browser has asked for nothing for so long
LONGEST_MS = 7 * DAY_MS  # a session ends in any case
NOTED_MS = MINUTE_MS  # a use is stored at most so often

OWNER = "SPYWEB_API_KEY"  # the name of a client with that key
TAKEN_NAMES = frozenset({OWNER, "local", "loopback", "nobody"})  # each has another meaning in the audit trail
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


Right = Scope  # what a key permits is what a request needs
ALL = frozenset(Right)

# No request waits for such a write: a slow disk delays no sign-in.
_note_failure = partial(note_refused, "a session, or the use of a key, was not stored")


class Principal(Struct, frozen=True, kw_only=True):
    """The sender of a request, and its rights."""

    name: str
    rights: frozenset[Right]
    source: Literal["key", "session", "socket", "loopback", "nobody"]
    jobs: tuple[str, ...] = ()  # patterns of the ids that it may see; none: all jobs, and things of no job
    key: KeyId | None = None  # None: SPYWEB_API_KEY, or it has shown none
    session: bytes | None = None  # by which a browser has shown its key

    @property
    def has_key(self) -> bool:
        return self.source in ("key", "session")

    def may(self, right: Right | None) -> bool:
        return right is None or right in self.rights

    def may_see(self, job: str) -> bool:
        return is_within(self.jobs, job)


THE_OWNER = Principal(name=OWNER, rights=ALL, source="key")


def rights_of(*scopes: Right) -> frozenset[Right]:
    """Return all rights that come with these: reading comes with each, and everything with `admin`."""
    return ALL if Right.ADMIN in scopes else frozenset({Right.READ, *scopes}) if scopes else frozenset()


class NewToken(NamedTuple):
    """A new key with its token, which is shown only once."""

    key: AccessKey
    token: str


class AccessService:
    def __init__(self, keys: AccessKeys, clock: Clock, api_key: str | None = None) -> None:
        self._stored = keys
        self._clock = clock
        self._api_key = api_key
        self._keys: dict[str, AccessKey] = {}  # by handle
        self._sessions: dict[bytes, BrowserSession] = {}  # by hash; the one seen last at the end
        self._changes = 0  # how often they have changed here
        self._held: Counter[bytes] = Counter()  # requests under way, by the hash of their session
        self._listeners: list[Callable[[], None]] = []

    async def load(self) -> None:
        """Read the keys and sessions from the store; until then only SPYWEB_API_KEY gives access.

        Again where another node may have changed some; unless they change here meanwhile, which is newer.
        """
        changes, asked = self._changes, (self._stored.all(), self._stored.sessions())
        keys = {key.handle: key for key in await asked[0]}
        sessions = {session.hash: session for session in await asked[1]}
        if changes != self._changes:
            return
        is_more = self._keys.keys() <= keys.keys() and self._sessions.keys() <= sessions.keys()
        self._keys, self._sessions = keys, sessions
        if not is_more:
            self._tell()
        self.sweep()

    @property
    def is_open(self) -> bool:
        """Return whether there is no key at all: then every client on this machine's loopback has access."""
        return not (self._api_key or self._keys)

    def on_ended(self, callback: Callable[[], None]) -> None:
        """Call this when keys or sessions end before their time: `is_valid` says which."""
        self._listeners.append(callback)

    # Keys

    def all_keys(self) -> list[AccessKey]:
        """Return all keys, by name."""
        return sorted(self._keys.values(), key=lambda key: key.name)

    async def add(self, name: str, scopes: Sequence[Scope], jobs: Sequence[str] = ()) -> NewToken:
        """Make a key.  Raises Refused where it makes no sense."""
        if found := find_problem(name, scopes, jobs):
            raise Refused(found[1])
        if len(self._keys) >= ACCESS_KEYS:
            raise Refused(f"there are {ACCESS_KEYS} keys already: revoke those that nobody uses")
        token = make_token()
        new = NewKey(
            name=name,
            handle=find_handle(token) or "",
            hash=hash_secret(token),
            scopes=tuple(scope for scope in Scope if scope in scopes),
            jobs=tuple(dict.fromkeys(jobs)),
            created_ms=self._clock.now_ms(),
        )
        key = await self._stored.add(new)
        if key is None:
            raise Refused(f"there is a key {name} already: revoke it, or take another name")
        self._keys[key.handle] = key
        self._changes += 1
        return NewToken(key, token)

    async def revoke(self, name: str) -> bool:
        """Remove a key with its sessions; they give no access from then on, even if the store refuses."""
        gone = [key for key in self._keys.values() if key.name == name]
        for key in gone:
            del self._keys[key.handle]
            self._forget([each.hash for each in self._sessions.values() if each.key == key.id])
        self._tell()
        try:
            return await self._stored.remove(name) or bool(gone)
        except STORE_REFUSED:
            self._keys |= {key.handle: key for key in gone}  # the store still has it, and a restart would bring it back
            raise

    def admit_key(self, text: str) -> Principal | None:
        """Return the principal of a client's key; None where the key is unknown."""
        return THE_OWNER if self.is_owner(text) else self.admit_token(text)

    def is_owner(self, text: str) -> bool:
        return self._api_key is not None and hmac.compare_digest(_bytes(text), _bytes(self._api_key))

    def admit_token(self, text: str) -> Principal | None:
        key = self._keys.get(find_handle(text) or "")
        if key is None or not hmac.compare_digest(hash_secret(text), key.hash):
            return None
        now_ms = self._clock.now_ms()
        if key.used_ms is None or abs(now_ms - key.used_ms) >= NOTED_MS:
            self._keys[key.handle] = replace(key, used_ms=now_ms)
            self._stored.used(key.id, now_ms).add_done_callback(_note_failure)
        return _principal_of(key)

    # Sessions

    def sign_in(self, who: Principal) -> str:
        """Begin a session, and return its cookie; of too many sessions of a key the one seen longest ago ends.

        A session of SPYWEB_API_KEY is known by a hash that covers the key: with another key it is nobody's.
        """
        cookie, now_ms = secrets.token_urlsafe(32), self._clock.now_ms()
        hash_ = hash_secret(cookie, also=self._api_key or "" if who.key is None else "")
        of_key = [each.hash for each in self._sessions.values() if each.key == who.key]
        self._end(of_key[: 1 - SESSIONS_OF_KEY])
        self._end(list(self._sessions)[: 1 - SESSIONS])
        session = BrowserSession(hash=hash_, key=who.key, created_ms=now_ms, seen_ms=now_ms)
        self._note(session, self._stored.add_session(session))
        return cookie

    def admit_session(self, cookie: str) -> Principal | None:
        """Return the principal of a cookie's session; None where there is none, or it is over."""
        hashes = (hash_secret(cookie), hash_secret(cookie, also=self._api_key or ""))
        session = next((self._sessions[each] for each in hashes if each in self._sessions), None)
        return self._seen(session) if session else None

    def sign_out(self, session: bytes) -> None:
        self._end([session])

    def is_valid(self, given: Principal) -> bool:
        """Tell whether an admitted principal is still valid."""
        if given.session is not None:
            session = self._sessions.get(given.session)
            return session is not None and not self._is_over(session)
        return given.key is None or any(key.id == given.key for key in self._keys.values())

    @contextmanager
    def held(self, given: Principal) -> Iterator[None]:
        """Keep a session while a request is under way: an open page, which listens, is no idle one."""
        hash_ = given.session
        if hash_ is None:
            yield
            return
        self._held[hash_] += 1
        try:
            yield
        finally:
            session = self._sessions.get(hash_)
            if session:
                self._seen(session)
            self._held[hash_] -= 1
            if not self._held[hash_]:
                del self._held[hash_]

    def sweep(self) -> None:
        """End the sessions whose time is over; those of open pages are noted as seen, for other nodes."""
        for session in [self._sessions[each] for each in self._held if each in self._sessions]:
            self._seen(session)
        self._end([each.hash for each in self._sessions.values() if self._is_over(each)])

    def _seen(self, session: BrowserSession) -> Principal | None:
        if self._is_over(session):
            self._end([session.hash])
            return None
        del self._sessions[session.hash]
        self._sessions[session.hash] = session  # at the end
        now_ms = self._clock.now_ms()
        if abs(now_ms - session.seen_ms) >= NOTED_MS:
            self._note(replace(session, seen_ms=now_ms), self._stored.session_seen(session.hash, now_ms))
        if session.key is None:
            return replace(THE_OWNER, source="session", session=session.hash)
        key = next((key for key in self._keys.values() if key.id == session.key), None)
        return replace(_principal_of(key), source="session", session=session.hash) if key else None

    def _is_over(self, session: BrowserSession) -> bool:
        """Return whether a session has expired; a clock that was set back by as much ends it, too."""
        now_ms = self._clock.now_ms()
        is_idle = abs(now_ms - session.seen_ms) > IDLE_MS and session.hash not in self._held
        return is_idle or abs(now_ms - session.created_ms) > LONGEST_MS

    def _note(self, session: BrowserSession, write: Future[None]) -> None:
        self._sessions[session.hash] = session
        self._changes += 1
        write.add_done_callback(_note_failure)

    def _end(self, hashes: list[bytes]) -> None:
        if hashes:
            self._forget(hashes)
            self._stored.end_sessions(hashes).add_done_callback(_note_failure)
            self._tell()

    def _forget(self, hashes: list[bytes]) -> None:
        self._changes += 1
        for each in hashes:
            self._sessions.pop(each, None)

    def _tell(self) -> None:
        for callback in self._listeners:
            callback()


def find_problem(name: str, scopes: Sequence[Scope], jobs: Sequence[str]) -> tuple[str, str] | None:
    """Return the field that is wrong and the reason, where no key can be made of this; else None."""
    if not _NAME.fullmatch(name) or name in TAKEN_NAMES:
        reason = "can't be the name of a key: expected letters, digits, '.', '_' and '-', at most 64"
        return "name", f"{name[:80]!r} {reason}"
    if not scopes:
        return "scopes", f"a key needs a scope: {', '.join(Scope)}"
    if len(jobs) > KEY_JOBS or any(not each or len(each.encode("utf-8", "replace")) > PATTERN for each in jobs):
        return "jobs", f"expected at most {KEY_JOBS} patterns of jobs, each of at most {PATTERN} bytes"
    return None


def _principal_of(key: AccessKey) -> Principal:
    return Principal(name=key.name, rights=rights_of(*key.scopes), source="key", jobs=key.jobs, key=key.id)


# A token is `spyweb_`, a handle by which its key is found, random characters, and a checksum: so a mistyped one is
# known as such without asking anything, and programs that look for secrets in files know it.  Its random part has 256
# bits: nobody can guess it, so one round of SHA-256 hides it as well as a slow hash would.
PREFIX = "spyweb_"
HANDLE, RANDOM, CHECKSUM = 8, 43, 6  # characters
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_TOKEN = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{HANDLE + RANDOM + CHECKSUM}}}")


def make_token() -> str:
    body = PREFIX + "".join(secrets.choice(ALPHABET) for _ in range(HANDLE + RANDOM))
    return body + _checksum(body)


def find_handle(text: str) -> str | None:
    """Return the handle of a token; None for a text that is none."""
    if not _TOKEN.fullmatch(text) or _checksum(text[:-CHECKSUM]) != text[-CHECKSUM:]:
        return None
    return text[len(PREFIX) : len(PREFIX) + HANDLE]


def hash_secret(secret: str, also: str = "") -> bytes:
    """Return the stored form of a token or cookie.

    With `also`, it covers that text as well: a reader of the hash learns nothing about `also` without the cookie.
    """
    if also:
        return hmac.digest(_bytes(secret), _bytes(also), "sha256")
    return hashlib.sha256(_bytes(secret)).digest()


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode("ascii")), ""
    for _ in range(CHECKSUM):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
