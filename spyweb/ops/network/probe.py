"""A look at the certificate that a TLS server shows, with the names and the limits of all other requests."""

from __future__ import annotations

import asyncio
import os
import ssl
from functools import cached_property

from spyweb.errors import FetchError
from spyweb.ops.network.addresses import is_literal, is_public, private_reason
from spyweb.ops.network.certificate import trusting_context
from spyweb.ops.network.resolver import Resolver


class Prober:
    def __init__(self, resolver: Resolver, *, deny_private: bool) -> None:
        self._resolver = resolver
        self._deny_private = deny_private

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return trusting_context()

    async def certificate(self, host: str, port: int) -> bytes:
        """In DER.  Tries the host's addresses in turn.  Raises FetchError, TimeoutError."""
        refusal = ""
        for address in await self._addresses(host):
            if self._deny_private and not is_public(address):
                refusal = private_reason(address)
                continue
            try:
                return await self._shown(address, host, port)
            except ssl.SSLError as error:
                raise FetchError("tls", f"TLS with {host}:{port} failed: {error.reason or error}") from error
            except OSError as error:
                refusal = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
        raise FetchError("connect", f"could not connect to {host}:{port}: {refusal}")

    async def _addresses(self, host: str) -> list[str]:
        if is_literal(host):
            return [host]
        try:
            return [each["host"] for each in await self._resolver.resolve(host)]
        except OSError as error:
            raise FetchError("dns", f"could not resolve {host}: {error}") from error

    async def _shown(self, address: str, host: str, port: int) -> bytes:
        _, writer = await asyncio.open_connection(
            address, port, ssl=self._context, server_hostname=host.rstrip(".").partition("%")[0]
        )
        try:
            shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.transport.abort()  # nothing is left to be said, and the far side may never answer a goodbye
        if shown is None:
            raise FetchError("tls", f"{host}:{port} shows no certificate")
        return shown
