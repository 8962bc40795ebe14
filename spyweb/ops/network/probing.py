"""Probe servers below HTTP, with the names, the rules and the limits of all other requests."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
from asyncio import StreamReader, StreamWriter, get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from ssl import SSLContext
from statistics import median
from typing import Any, TypeVar

from spyweb import descriptors
from spyweb.clock import Clock
from spyweb.errors import FetchError
from spyweb.ops.network.address_check import UNDER_WAY, AddressCheck, NetGate
from spyweb.ops.network.certificate import machine_trust, read_certificate, shown_certificate
from spyweb.ops.network.connector import open_socket
from spyweb.ops.network.name_query import answer_in, question_of
from spyweb.ops.network.request import Probe
from spyweb.ops.network.resolver import NUMERIC, Resolver
from spyweb.permissions.hosts import shown_host

T = TypeVar("T")
Attempt = Callable[[str, float], Awaitable[T]]  # at an address, until a moment.  Raises FetchError, OSError
Found = dict[str, object]
Streams = tuple[StreamReader, StreamWriter, float]

MOST_AT_ONCE = 256
MOST_HANDSHAKES = 2  # at once, since others need threads too
MOST_STRAYS = 100  # datagrams that are no answer
QUIET_S = 1.0  # after which a line without an end is taken for all of it
ASK_AGAIN_S = (1.0, 2.0, 60.0)  # UDP loses some questions
DATAGRAM = 4096
ASK_ANOTHER = ("SERVFAIL", "REFUSED", "NOTIMP")  # with these, resolvers go on to the next name server
ECHO = ((socket.IPPROTO_ICMP, 8, b"\x00"), (socket.IPPROTO_ICMPV6, 128, b"\x81"))  # types of requests and replies
NO_ICMP = "the sysctl net.ipv4.ping_group_range permits it to no group of spyweb's user: change it, or use tcp_probe"


class Prober:
    """Probes servers, so many at once; others wait in line, and their time begins with their turn."""

    def __init__(self, resolver: Resolver, clock: Clock, check: partial[AddressCheck], tls: SSLContext | None) -> None:
        self._resolver, self._clock, self._check = resolver, clock, check
        self._tls = tls  # which certificates to trust; None: those that this machine trusts
        self._room = asyncio.Semaphore(min(MOST_AT_ONCE, descriptors.share(16, 1)))
        self._handshakes = asyncio.Semaphore(MOST_HANDSHAKES)

    async def probe(self, probe: Probe, gate: NetGate | None = None) -> Found:
        """Return what a server answers.  Raises FetchError."""
        check = self._check(host=probe.server or probe.host, port=probe.port, gate=gate)
        async with self._room:
            match probe.function:
                case "tls_probe":
                    return await self._shown(check, probe)
                case "tcp_probe":
                    return await self._talk(check, probe)
                case "ping":
                    return await self._reach(check, probe, partial(ping, probe))
            query, servers = await asyncio.to_thread(question_of, probe.host, probe.type, probe.server)
            if servers:  # of this machine, whatever the job may reach
                check = self._check(host=servers[0], port=probe.port, gate=None, deny_private=False)
            return await self._reach(check, probe, partial(ask, probe, query), servers)

    async def _shown(self, check: AddressCheck, probe: Probe) -> Found:
        """Return the certificate that a TLS server shows, trusted or not."""
        ends, where = get_running_loop().time() + probe.timeout, shown_host(probe.host, probe.port)
        reader, writer, _ = await self._reach(check, probe, partial(dial, probe, None))
        try:
            async with asyncio.timeout_at(ends):
                der = await shown_certificate(reader, writer, probe.host, self._handshakes)
            return await asyncio.to_thread(read_certificate, der, self._clock.now_ms())
        except (OSError, EOFError) as error:
            raise FetchError("tls", f"TLS with {where} failed: {reason_of(error)}") from error
        except ValueError as error:
            reason = [*str(error).splitlines(), "damaged"][0]
            raise FetchError("tls", f"the certificate can't be read: {reason}") from error
        finally:
            writer.transport.abort()  # nothing is left to send, and the server may never answer a shutdown

    async def _talk(self, check: AddressCheck, probe: Probe) -> Found:
        tls = (self._tls or await asyncio.to_thread(machine_trust)) if probe.tls else None
        ends, where = get_running_loop().time() + probe.timeout, shown_host(probe.host, probe.port)
        reader, writer, latency = await self._reach(check, probe, partial(dial, probe, tls))
        try:
            writer.write(probe.send)
            return {"latency": latency, "banner": await first_line(reader, probe.read, ends)}
        except OSError as error:
            raise FetchError("connect", f"{where} said nothing: {reason_of(error)}") from error
        finally:
            writer.transport.abort()

    async def _reach(self, check: AddressCheck, probe: Probe, attempt: Attempt[T], addresses: Sequence[str] = ()) -> T:
        """Make the attempt at each permitted address of a host, in an equal part of the time.  Raises FetchError.

        A name server that can't or won't answer counts only if none of the further ones answers.
        """
        loop, kind, reason, found = get_running_loop(), "connect", "it has no address", None
        ends, where = loop.time() + probe.timeout, shown_host(check.host, check.port)
        try:
            async with asyncio.timeout_at(ends):
                addresses = addresses or await self._resolver.addresses(check.host)
        except OSError as error:
            raise FetchError("dns", f"could not resolve {check.host}: {reason_of(error)}") from error
        UNDER_WAY.set(check)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                found = await attempt(address, loop.time() + (ends - loop.time()) / left)
                if not isinstance(found, dict) or found.get("rcode") not in ASK_ANOTHER:
                    return found
            except ssl.SSLError as error:
                raise FetchError("tls", f"TLS with {where} failed: {reason_of(error)}") from error
            except OSError as error:
                kind, reason = "timeout" if isinstance(error, TimeoutError) else "connect", reason_of(error)
        if found:
            return found
        raise check.refusal or FetchError(kind, f"could not connect to {where}: {reason}")


def opened(address: str, port: int, kind: int, protocol: int = 0) -> tuple[socket.socket, Any]:
    """Return a socket for an address that the probe may reach, and the address as it wants it.  Raises OSError."""
    family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM, flags=NUMERIC)[0]
    wire = open_socket((family, kind, protocol, "", place))
    wire.setblocking(False)
    return wire, place


async def dial(probe: Probe, tls: SSLContext | None, address: str, until: float) -> Streams:
    """Return the streams of a new connection, and the milliseconds that it took.  Raises OSError."""
    (wire, place), began = opened(address, probe.port, socket.SOCK_STREAM), get_running_loop().time()
    async with asyncio.timeout_at(until):
        try:
            await get_running_loop().sock_connect(wire, place)
        except BaseException:
            wire.close()
            raise
        host = probe.host.rstrip(".").partition("%")[0] if tls else None
        return *(await asyncio.open_connection(sock=wire, ssl=tls, server_hostname=host)), ms_since(began)


async def first_line(reader: StreamReader, most: int, ends: float) -> bytes:
    """Return a line, or what there is of it after `most` bytes, or a pause.  Raises OSError where there is nothing."""
    said = bytearray()
    try:
        while len(said) < most and b"\n" not in said:
            async with asyncio.timeout_at(min(ends, get_running_loop().time() + QUIET_S) if said else ends):
                piece = await reader.read(most - len(said))
            if not piece:
                raise ConnectionError("the server closed")
            said += piece
    except OSError:
        if not said:
            raise
    return bytes(said).partition(b"\n")[0].removesuffix(b"\r")


async def ask(probe: Probe, query: Any, address: str, until: float) -> Found:
    """Return a name server's answer, over TCP where that over UDP is truncated.  Raises FetchError, OSError."""
    (wire, place), loop = opened(address, probe.port, socket.SOCK_DGRAM), get_running_loop()
    began, found, strays = loop.time(), None, 0
    with wire:
        wire.connect(place)  # so that only this server is heard
        for pause in ASK_AGAIN_S:
            await loop.sock_sendall(wire, query.to_wire())
            ends = min(until, loop.time() + pause)
            with suppress(TimeoutError):
                while found is None and strays < MOST_STRAYS:
                    async with asyncio.timeout_at(ends):
                        data = await loop.sock_recv(wire, DATAGRAM)
                    found = await asyncio.to_thread(answer_in, data, query)  # however long it waits for a thread
                    strays += found is None
            if found is not None or strays == MOST_STRAYS or loop.time() >= until:
                break
    if found is None:
        raise TimeoutError(f"no answer in time, but {strays} to something else" if strays else "")
    return {**(found or await ask_by_tcp(probe, query, address, until)), "latency": ms_since(began)}


async def ask_by_tcp(probe: Probe, query: Any, address: str, until: float) -> Found:
    reader, writer, _ = await dial(probe, None, address, until)
    try:
        async with asyncio.timeout_at(until):
            writer.write(query.to_wire(prepend_length=True))
            data = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        if found := await asyncio.to_thread(answer_in, data, query):
            return found
        raise ConnectionError("over TCP it answers something else")
    except asyncio.IncompleteReadError:
        raise ConnectionError("its answer over TCP ends too early") from None
    finally:
        writer.transport.abort()


async def ping(probe: Probe, address: str, _until: float) -> Found:
    """Send echo requests, one after another.  Raises FetchError, OSError."""
    loop, times, token = get_running_loop(), list[float](), secrets.token_bytes(16)
    protocol, request, reply = ECHO[":" in address]
    try:
        wire, place = opened(address, 0, socket.SOCK_DGRAM, protocol)
    except PermissionError:
        raise FetchError("permission", f"could not ping {probe.host}: {NO_ICMP}") from None
    with wire:
        wire.connect(place)
        for number in range(probe.count):
            began, known = loop.time(), bytes([0, number]) + token
            await loop.sock_sendall(wire, bytes([request, 0, 0, 0, 0, 0]) + known)  # the kernel adds checksum and id
            with suppress(TimeoutError):
                async with asyncio.timeout(probe.timeout):
                    for _ in range(MOST_STRAYS):
                        data = await loop.sock_recv(wire, DATAGRAM)
                        if data[:1] == reply and data[6:] == known:
                            times.append(ms_since(began))
                            break
    return {"loss": round(1 - len(times) / probe.count, 3), **({"latency": median(times)} if times else {})}


def reason_of(error: Exception) -> str:
    """Return why the network or TLS failed: what is wrong with a certificate, or the system's words, or its own."""
    if isinstance(error, ssl.SSLError):
        return str(getattr(error, "verify_message", "") or error.reason or error)
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "the server closed")


def ms_since(began: float) -> float:
    return round((get_running_loop().time() - began) * 1000, 1)
