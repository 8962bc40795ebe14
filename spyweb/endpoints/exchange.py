"""One request under way, seen from its VM: it answers by its op `_respond`, and whatever it asks besides is an op."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from msgspec import Struct

from spyweb.lua.session import Host

RESPOND_OP, REQUIRE_OP = "_respond", "_require"

Results = Sequence[object]
Modules = dict[bytes, Results]  # what `_require` gave, by name


class EndpointAnswer(Struct, frozen=True):
    """What a handler answered, with its headers as it put them."""

    status: int
    body: bytes
    headers: Mapping[bytes, bytes] = {}  # its own: a Struct copies it


FAILED = None  # it has raised, and its run's end will say why


class EndpointHost:
    """The Host of one request.

    `answered` is done as soon as the VM has answered.  What it loads with `require` comes from `modules` where it is
    there: every request of a version sees the same code, whatever is being saved meanwhile.
    """

    def __init__(self, make_host: Callable[[], Host], modules: Modules, on_answer: Callable[[], None]) -> None:
        self.answered: Future[EndpointAnswer | None] = asyncio.get_running_loop().create_future()
        self._make_host = make_host
        self._made: Host | None = None
        self._modules = modules
        self._on_answer = on_answer

    @property
    def has_asked(self) -> bool:
        """Whether there was any op: most requests ask for none, and need no host."""
        return self._made is not None

    @property
    def _host(self) -> Host:
        if self._made is None:
            self._made = self._make_host()
        return self._made

    def op(self, name: str, arguments: Sequence[object]) -> Awaitable[Results]:
        if name == RESPOND_OP:
            self.answer(_answer(arguments))
            return _done(())
        if name == REQUIRE_OP:
            return self._require(arguments)
        return self._host.op(name, arguments)

    def log(self, level: str, text: bytes) -> None:
        self._host.log(level, text)

    def answer(self, answer: EndpointAnswer | None) -> None:
        """The first one stands."""
        if not self.answered.done():
            self.answered.set_result(answer)
            self._on_answer()

    def _require(self, arguments: Sequence[object]) -> Awaitable[Results]:
        name = cast(bytes, arguments[0])
        known = self._modules.get(name)
        return self._load(name, arguments) if known is None else _done(known)

    async def _load(self, name: bytes, arguments: Sequence[object]) -> Results:
        results = await self._host.op(REQUIRE_OP, arguments)
        return self._modules.setdefault(name, results)


def answer_in(result: object) -> EndpointAnswer | None:
    """The answer that a run gave as its result, if it gave one."""
    if not isinstance(result, list) or len(result) != 2:
        return None
    status, body = result
    return EndpointAnswer(status, body)


def _answer(arguments: Sequence[object]) -> EndpointAnswer | None:
    if not arguments:
        return FAILED
    status, headers, body = arguments
    return EndpointAnswer(cast(int, status), cast(bytes, body), cast("dict[bytes, bytes]", headers or {}))


def _done(results: Results) -> Future[Results]:
    future: Future[Results] = asyncio.get_running_loop().create_future()
    future.set_result(results)
    return future
