"""Services that alerts are sent to, on this machine: over HTTP, by the name of a public one through a proxy, and mail.

The proxy ends TLS itself, with certificates of an authority of the test's own: so the real addresses of Slack, Discord
and Telegram are sent to, and none is reached.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from functools import cache
from io import BytesIO
from pathlib import Path

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.fakes.http_server import Answer, Arrived, Handler, serving


@dataclass(slots=True)
class Services:
    """Keeps what came; each request is answered by `answer`."""

    port: int = 0
    authority: Path = Path()
    arrived: list[Arrived] = field(default_factory=list)
    answer: Callable[[Arrived], Answer] = lambda _: Answer()
    hangs: bool = False
    drops: bool = False  # takes a connection, and closes it without a word
    over: threading.Event = field(default_factory=threading.Event)

    def renew(self) -> None:
        """Be as if nothing had come yet."""
        self.over.set()
        self.arrived.clear()
        self.hangs, self.drops, self.over, self.answer = False, False, threading.Event(), lambda _: Answer()

    def take(self, arrived: Arrived) -> Answer | None:
        self.arrived.append(arrived)
        if self.hangs:
            self.over.wait()
        return None if self.drops or self.hangs else self.answer(arrived)

    @property
    def environ(self) -> dict[str, str]:
        """What leads a process to these services by the names of public ones."""
        return {"HTTPS_PROXY": f"http://127.0.0.1:{self.port}", "REQUESTS_CA_BUNDLE": str(self.authority)}


@cache
def authority() -> trustme.CA:
    return trustme.CA()


class Proxy(Handler):
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        self.host = self.path.partition(":")[0]
        self.send_response(200)
        self.end_headers()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority().issue_cert(self.host).configure_cert(context)
        with context.wrap_socket(self.connection, server_side=True) as connection:
            self.rfile, self.wfile = connection.makefile("rb"), connection.makefile("wb")
            self.close_connection = False
            while not self.close_connection:
                self.handle_one_request()
            self.rfile.close()
            self.wfile.close()
        self.rfile, self.wfile = BytesIO(), BytesIO()  # what the server itself closes


@contextmanager
def open_services(folder: Path) -> Iterator[Services]:
    file = folder / "authority.pem"
    authority().cert_pem.write_to_path(str(file))
    services = Services(authority=file)
    with serving(services.take, handler=Proxy) as origin:
        services.port = int(origin.rpartition(":")[2])
        yield services
        services.over.set()


class MailBox:
    """Takes mail; keeps what came."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.port = 0

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(BytesParser(policy=default).parsebytes(content))
        return "250 taken"


@contextmanager
def open_mail_box() -> Iterator[MailBox]:
    box = MailBox()
    with socket.socket() as free:  # the controller connects to its own port, so it must know it
        free.bind(("127.0.0.1", 0))
        box.port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=box.port)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for something that no event tells of."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)
