"""A name server on loopback, over UDP and TCP, that answers as the name says which it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio import DatagramProtocol, DatagramTransport, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
from dns.message import Message

Change = Callable[[Message], None]


@dataclass(slots=True)
class NameServer:
    """Holds where it listens, how it answers, and what it was asked."""

    port: int = 0
    records: list[str] = field(default_factory=list)  # of all names: "www.example.test. 60 IN A 192.0.2.1"
    change: Change = lambda _: None  # made to each answer
    raw: Callable[[bytes], list[bytes]] = lambda wire: [wire]  # what is sent of it over UDP
    is_truncated: bool = False  # over UDP, where nothing but the header is sent then
    is_cut: bool = False  # over TCP
    lost: int = 0  # questions that do not arrive
    elsewhere: bool = False  # answers come from another port
    story: list[str] = field(default_factory=list)  # "UDP www.example.test. A"

    def server(self, host: str = "127.0.0.1") -> bytes:
        return f"{host}:{self.port}".encode()

    def answer(self, data: bytes, way: str) -> Message:
        query = dns.message.from_wire(data)
        asked = query.question[0]
        self.story.append(f"{way} {asked.name} {dns.rdatatype.to_text(asked.rdtype)}")
        answer = dns.message.make_response(query)
        for line in self.records:
            name, ttl, kind, of, text = line.split(" ", 4)
            answer.answer.append(dns.rrset.from_text(name, int(ttl), kind, of, text))
        self.change(answer)
        return answer


class _Udp(DatagramProtocol):
    def __init__(self, served: NameServer) -> None:
        self._served = served

    def connection_made(self, transport: DatagramTransport) -> None:  # type: ignore[override]  # it is one
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        served = self._served
        if served.lost:
            served.lost -= 1
            return
        answer = served.answer(data, "UDP")
        if served.is_truncated:
            answer.flags |= dns.flags.TC
            answer.answer.clear()
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            send = other.sendto if served.elsewhere else self._transport.sendto
            for each in served.raw(answer.to_wire(max_size=65_535)):
                send(each, addr)


@asynccontextmanager
async def open_name_server(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[NameServer]:
    served = NameServer()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            size = int.from_bytes(await reader.readexactly(2), "big")
            wire = served.answer(await reader.readexactly(size), "TCP").to_wire(max_size=65_535)
            writer.write(len(wire).to_bytes(2, "big") + (wire[:5] if served.is_cut else wire))
        writer.close()

    tcp = await asyncio.start_server(serve, host, port)
    served.port = tcp.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    udp, _ = await loop.create_datagram_endpoint(lambda: _Udp(served), local_addr=(host, served.port))
    try:
        yield served
    finally:
        udp.close()
        tcp.close()
