"""Send what only the owner of a job can answer to the node that owns it, and recognise what other nodes send.

A node passes on what its guard has admitted: the body as it came and, in place of the client's key or cookie, which
never leave the node, a voucher: who the client is, signed with a secret of all nodes.  It is for one request (method,
address, body) to one node, short-lived, and accepted once.  The owner checks the rights again, and passes nothing on.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import takewhile
from secrets import token_hex

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct
from msgspec.json import encode as to_bytes
from msgspec.structs import replace
from multidict import CIMultiDict
from yarl import URL

from spyweb.clock import Clock
from spyweb.model import JobId, Run, RunId
from spyweb.ownership import Slot, slot_of
from spyweb.runs.live import LiveJobs
from spyweb.store.model.nodes import Node
from spyweb.views.jobs import find_job
from spyweb.web.access.headers import NOT_SENT, THEME
from spyweb.web.access.keys import AccessService
from spyweb.web.access.principal import PRINCIPAL, Principal
from spyweb.web.access.recognise import KEY_HEADER, RECOGNISER, AtOwner, bearer_of
from spyweb.web.body import BODY_MEMORY, DIGEST, Body

HEADER = "Spyweb-Voucher"
LIFE_MS = 30_000  # of a voucher: nodes whose clocks differ by more own nothing
MOST_SEEN = 50_000  # vouchers that are remembered
MOST_PATTERNS = 2_000  # bytes of the patterns of a client's jobs that a voucher holds as JSON; of more, only the job
AT_ONCE = 256  # requests that are passed on
CONNECT_S = 5.0  # also until one of so many has ended
LOOK_S = 5.0  # between two checks whether the node is there, and the client still listens
# Headers that are the client's affair with this node, or were undone here.
NOT_PASSED = NOT_SENT | {"host", "cookie", "origin", "referer", "expect", "content-encoding", KEY_HEADER.lower()}
NOT_RETURNED = NOT_SENT | {"set-cookie", "server", "date"}


class Voucher(Struct, frozen=True, kw_only=True):
    """One node's word to another for a request."""

    nonce: str
    to: int  # the node
    at_ms: int
    body: str  # its digest
    who: Principal


VOUCHER = web.RequestKey("the voucher of another node", Voucher)


@dataclass(slots=True, kw_only=True, eq=False)
class Forwarder:
    """Passes requests on to the nodes that own their jobs."""

    me: int  # this node
    owner_of: Callable[[Slot], Node | None]  # among the living
    live: LiveJobs
    find_run: Callable[[RunId], Awaitable[Run | None]]
    look: Callable[[], Awaitable[None]]  # brings up to date what other nodes have changed
    access: AccessService
    key: bytes
    http: aiohttp.ClientSession
    clock: Clock
    _seen: dict[str, float] = field(default_factory=dict)  # the nonces of late with their times, oldest first

    def recognise(self, request: web.Request) -> Principal | None:
        """Return for whom another node sends a request; None where a client has sent it.

        Raises HTTPForbidden, and HTTPServiceUnavailable.
        """
        given = request.headers.get(HEADER)
        if given is None:
            return None
        content, _, signature = given.partition(".")
        expected = self._sign(content, request.method, request.rel_url.raw_path_qs)
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape")):
            raise web.HTTPForbidden(text="no node of this cluster has sent this request")
        try:
            voucher = msgspec.json.decode(urlsafe_b64decode(content), type=Voucher)
        except msgspec.DecodeError as error:  # while the nodes of a cluster are upgraded one by one
            raise _busy("the node that was asked has another version of spyweb: ask the job's own node", 5) from error
        self._check(voucher)
        if not request.can_read_body and voucher.body != sha256().hexdigest():
            raise web.HTTPForbidden(text="the body that was signed is missing")
        request[VOUCHER], request[DIGEST] = voucher, voucher.body
        return voucher.who

    def _check(self, voucher: Voucher) -> None:
        now = self.clock.monotonic()
        for nonce in list(takewhile(lambda nonce: now - self._seen[nonce] > 2 * LIFE_MS / 1000, self._seen)):
            del self._seen[nonce]
        is_late = abs(self.clock.now_ms() - voucher.at_ms) > LIFE_MS
        if is_late or voucher.to != self.me or voucher.nonce in self._seen:
            raise web.HTTPForbidden(text="the request of another node is late, was for another, or has come before")
        if voucher.who.source == "loopback" and not self.access.is_open:
            raise web.HTTPForbidden(text="this node needs a key, and the one that was asked needs none")
        if len(self._seen) >= MOST_SEEN:
            raise _busy("too many requests of other nodes")
        self._seen[voucher.nonce] = now

    def _sign(self, content: str, method: str, target: str) -> str:
        signed = f"voucher\n{content}\n{method}\n{target}"  # the secret signs other texts, too
        return hmac.digest(self.key, signed.encode("utf-8", "surrogateescape"), sha256).hex()

    async def answer(self, handler: Handler, at_owner: AtOwner | None, request: web.Request) -> web.StreamResponse:
        """Have the owner of a request's job answer, or the handler, where that is this node, or any can."""
        await self.look()
        job, answer = await self._job_of(request) if at_owner else None, None
        try:
            answer = await self.to_owner(request, job, at_owner) if job and at_owner else None
        except (web.HTTPConflict, web.HTTPServiceUnavailable):
            if at_owner == "must":
                raise
        return answer or await handler(request)

    async def _job_of(self, request: web.Request) -> JobId | None:
        number = request.match_info.get("run", "")
        if number.isascii() and number.isdigit() and len(number) < len(str(1 << 63)):
            run = await self.find_run(RunId(int(number)))
            return run.job if run else None
        name = JobId(request.match_info.get("job") or request.query.get("job", ""))
        return name if self.live.find(name) else find_job((job.spec for job in self.live), name)

    async def to_owner(
        self, request: web.Request, job: JobId, at_owner: AtOwner = "must", body: bytes | None = None
    ) -> web.StreamResponse | None:
        """Answer with what the owner of a job answers; None where this node is to answer, or to refuse.

        Raises HTTPConflict or HTTPServiceUnavailable where the owner can't.
        """
        node = self._node_for(request, job) if request[PRINCIPAL].may_see(job) else None
        if node is None:
            return None

        def is_there() -> bool:
            owner = self._owner_of(job)
            return owner is not None and owner.id == node.id and request.transport is not None

        try:
            with closing(Body(request.app[BODY_MEMORY])) as memory:
                if body is None:
                    body = await memory.read(request) if request.can_read_body else b""
                async with _while(lambda: at_owner == "must" and is_there()):  # a head may take as long as a run
                    answer = await self._send(request, job, node, body)
                body = b""  # it is counted no more
            with closing(answer):
                if answer.status == web.HTTPServiceUnavailable.status_code and at_owner == "rather":
                    raise web.HTTPServiceUnavailable
                return await _copy(request, answer, is_there)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError as well; once the answer began, none comes here
            reason = str(error) or "it takes too long, or the job has moved"
            raise _busy(f"{job} is at {node.name}, which does not answer: {reason}", 5) from error

    def _owner_of(self, job: JobId) -> Node | None:
        found = self.live.find(job)
        return self.owner_of(found.slot if found else slot_of(job))

    def _node_for(self, request: web.Request, job: JobId) -> Node | None:
        """Return the other node that owns a job; None where this one does."""
        if self.live.is_mine(job):
            return None
        node = self._owner_of(job)
        if VOUCHER in request or (node and node.id == self.me):
            raise _busy(f"{job} is moving from one node to another: try again")
        if node is None:
            raise _busy(f"no node runs {job} now: `spyweb nodes` shows which are up", 5)
        if not node.url:
            raise web.HTTPConflict(text=f"{job} is at {node.name}: with [cluster] url there, other nodes ask it")
        return node

    async def _send(self, request: web.Request, job: JobId, node: Node, body: bytes) -> aiohttp.ClientResponse:
        """Pass a request on, and return the answer as soon as its head has come."""
        who, target, digest = request[PRINCIPAL], request.rel_url.raw_path_qs, sha256(body).hexdigest()
        jobs = who.jobs if len(to_bytes(who.jobs)) <= MOST_PATTERNS else (job,)
        who, now_ms = replace(who, jobs=jobs, session=None), self.clock.now_ms()
        voucher = Voucher(nonce=token_hex(16), to=node.id, at_ms=now_ms, body=digest, who=who)
        content = urlsafe_b64encode(to_bytes(voucher)).decode()
        headers = _passed_headers(request)
        headers[HEADER] = f"{content}.{self._sign(content, request.method, target)}"
        url = URL(node.url.rstrip("/") + target, encoded=True)
        return await self.http.request(request.method, url, headers=headers, data=body, allow_redirects=False)


def http_to_nodes() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        auto_decompress=False,
        connector=aiohttp.TCPConnector(limit=AT_ONCE, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
    )


def _passed_headers(request: web.Request) -> CIMultiDict[str]:
    """Return the headers that another node gets, without the client's key and cookies, and those of its connection."""
    recogniser, kept = request.app.get(RECOGNISER), CIMultiDict[str]()
    of_connection = ",".join(request.headers.getall("Connection", ())).lower().split(",")
    dropped = NOT_PASSED.union(map(str.strip, of_connection))
    for name, value in request.headers.items():
        is_key = name.lower() == "authorization" and recogniser is not None and recogniser.knows(bearer_of(value))
        if name.lower() not in dropped and not is_key:
            kept.add(name, value)
    if theme := request.cookies.get(THEME):
        kept["Cookie"] = f"{THEME}={theme}"
    return kept


async def _copy(
    request: web.Request, answer: aiohttp.ClientResponse, is_there: Callable[[], bool]
) -> web.StreamResponse:
    """Send an answer to the client as it comes; one that breaks off is broken off here."""
    kept = CIMultiDict((name, value) for name, value in answer.headers.items() if name.lower() not in NOT_RETURNED)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=kept)
    await response.prepare(request)
    try:
        async with _while(is_there):
            while piece := await answer.content.readany():
                await response.write(piece)  # who reads nothing is disconnected (web/connections.py)
            await response.write_eof()
    except (aiohttp.ClientError, OSError):
        if request.transport:
            request.transport.abort()
    return response


@asynccontextmanager
async def _while(is_there: Callable[[], bool]) -> AsyncIterator[None]:
    """Raise TimeoutError in this context once the other side is not there any more."""
    call_later = asyncio.get_running_loop().call_later
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if is_there():
            timer = call_later(LOOK_S, look)
        else:
            limit.reschedule(0)

    async with asyncio.timeout(None) as limit:
        timer = call_later(LOOK_S, look)
        try:
            yield
        finally:
            timer.cancel()


def _busy(text: str, again_s: int = 1) -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(text=text, headers={"Retry-After": str(again_s)})
