"""The op tls_probe: reads a server's certificate, and how long it is still valid."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from yarl import URL

from spyweb.errors import FetchError, NotPermitted, OpError
from spyweb.limits import HOST
from spyweb.ops.arguments import Int, Text
from spyweb.ops.network.certificate import read_certificate
from spyweb.ops.op import NET, OpEffect, OpFamily, op
from spyweb.ops.world import Call

FAMILY = OpFamily(name="TLS", errors="A failure returns nil and a message.")

HTTPS = 443
HIGHEST_PORT = 65_535

Outcome: TypeAlias = tuple[dict[str, object] | None, str | None]  # a certificate, or why there is none


@op(needs=NET, effect=OpEffect.NONE, types="(host: string, port?: integer): Certificate? certificate, string? message")
async def tls_probe(call: Call, host: Text, port: Int = HTTPS) -> Outcome:
    """Return the certificate of a TLS server, trusted or not, as a table; or nil and a message."""
    try:
        name, gate = name_of(host), call.gate("tls_probe")
        if not 0 < port <= HIGHEST_PORT:
            raise FetchError("connect", f"not a port: {port}")
        gate.check(name, port)
        der = await call.world.http.certificate(name, port, gate)
        return await asyncio.to_thread(read_certificate, der, call.world.clock.now_ms()), None
    except NotPermitted as error:
        raise OpError(str(error)) from None
    except FetchError as error:
        return None, str(error)
    except ValueError as error:
        return None, f"the certificate can't be read: {str(error).splitlines()[0] if str(error) else 'damaged'}"


def name_of(host: bytes) -> str:
    """Return a host's name in the form that the network uses.  Raises FetchError."""
    try:
        given = host.decode("utf-8").strip("[]")
        name = URL.build(scheme="https", host=given).raw_host if len(given) <= HOST else None
    except ValueError:
        name = None
    if not name or not name.isprintable() or set(name) & set(" /@?#"):
        raise FetchError("dns", f"not a host name: {host[:80].decode('utf-8', 'backslashreplace')!r}")
    return name
