"""A script that makes HTTP requests through its run's host, over the real network of this machine."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import cast

from spyweb.clock import RealClock
from spyweb.model import MIB
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network.client import open_client
from spyweb.ops.network.resolver import Lookup, ask_system
from spyweb.settings.sections import HttpSettings
from tests.fakes.ops import make_call, make_world
from tests.fakes.web_server import headers_of

Fields = dict[str, object]


class Script:
    """Calls ops as a script would."""

    def __init__(self, host: OpDispatcher) -> None:
        self._host = host

    async def ask(self, op: str, *arguments: object) -> Fields:
        """Return the response of an op, which must be without error."""
        response, error = await self._host.op(op, arguments)
        assert error is None, error
        return cast(Fields, response)

    async def fail(self, op: str, *arguments: object) -> Fields:
        response, error = await self._host.op(op, arguments)
        assert response is None
        return cast(Fields, error)


@asynccontextmanager
async def open_script(
    settings: HttpSettings | None = None,
    *,
    memory_limit: int = 64 * MIB,
    lookup: Lookup = ask_system,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Script]:
    async with open_client(settings or HttpSettings(), RealClock(), lookup=lookup, tls=tls) as client:
        call = make_call(make_world(http=client), memory_limit=memory_limit)
        yield Script(OpDispatcher(call))


def body_of(response: Fields) -> bytes:
    return cast(bytes, response["body"])


def sent_headers(response: Fields) -> dict[str, str]:
    return headers_of(body_of(response))


def plays_public(address: str) -> bool:
    """Take 127.0.0.1 for a public address, and no other."""
    return ip_address(address) == ip_address("127.0.0.1")
