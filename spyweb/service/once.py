"""Start one run for a request, however often it is sent: clients repeat a request whose answer they did not get.

The key of a request is recorded in the commit of its run.  So there are both, or neither: after a crash between the two
a repetition finds the run, or starts it.
"""

from __future__ import annotations

import hashlib
from asyncio import shield
from collections.abc import Callable

from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import KeyReused, Refused
from spyweb.model import RunId
from spyweb.runs.runner import Claims
from spyweb.settings.units import DAY_MS
from spyweb.store.model.runs import RequestKey
from spyweb.store.sqlite.runs import Requests

KEPT_MS = DAY_MS


class StartedRun(Struct, frozen=True, kw_only=True):
    """The run that a request has started, now or when it was first sent."""

    run: RunId | None
    is_repeated: bool = False


def request_key(scope: str, key: str, asked: bytes, now_ms: int) -> RequestKey:
    """Make the key of a request: `asked` is all that makes two requests the same."""
    hashed = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    return RequestKey(scope=scope, key=hashed, fingerprint=hashlib.sha256(asked).digest(), at_ms=now_ms)


class OnceService:
    def __init__(self, requests: Requests, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock
        self._under_way: dict[tuple[str, bytes], bytes] = {}  # fingerprints, until the store has answered

    async def start(self, key: RequestKey | None, start: Callable[[RequestKey | None], Claims]) -> StartedRun:
        """Start a run, unless a request with this key has started one within a day: then that is the answer.

        Raises KeyReused where that was another request, and Refused while it is under way.
        """
        if key is None:
            return StartedRun(run=next(iter(await start(None)), None))
        place = (key.scope, key.key)
        if place in self._under_way:
            _expect_same(self._under_way[place], key)
            raise Refused("the same request is under way: its answer is not known yet")
        self._under_way[place] = key.fingerprint
        try:
            known = await self._requests.find(*place)
            if known is not None and self._clock.now_ms() - known.at_ms < KEPT_MS:
                _expect_same(known.fingerprint, key)
                del self._under_way[place]
                return StartedRun(run=known.run, is_repeated=True)
            claims = start(key)
        except BaseException:
            del self._under_way[place]
            raise
        # Until the commit, also where nobody waits for it any more.
        claims.add_done_callback(lambda _: self._under_way.pop(place, None))
        run = next(iter(await shield(claims)), None)
        self._under_way.pop(place, None)  # the callback may still have to come, where the answer was there at once
        return StartedRun(run=run)


def _expect_same(fingerprint: bytes, key: RequestKey) -> None:
    if fingerprint != key.fingerprint:
        raise KeyReused("this Idempotency-Key was used for another request")
