"""Services that alerts are sent to, on this machine: over HTTP, by the name of a public one through a proxy, and mail.

The proxy ends TLS itself, with certificates of an authority of the test's own: so the real addresses of Slack, Discord
and Telegram are sent to, and none is reached.
"""

from __future__ import annotations

import asyncio
import json
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass(slots=True)
class Arrived:
    """One request that a service got."""

    host: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return f"{self.path} {self.headers} {self.body.decode('utf-8', 'replace')}"


@dataclass(slots=True)
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"ok": true}'
    repeated: int = 1  # how often the body is sent


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

    @property
    def environ(self) -> dict[str, str]:
        """What leads a process to these services by the names of public ones."""
        return {"HTTPS_PROXY": f"http://127.0.0.1:{self.port}", "REQUESTS_CA_BUNDLE": str(self.authority)}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    services: Services
    authority: trustme.CA


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    host = ""

    def do_CONNECT(self) -> None:
        server = cast(Server, self.server)
        self.host = self.path.partition(":")[0]
        self.send_response(200)
        self.end_headers()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.authority.issue_cert(self.host).configure_cert(context)
        with context.wrap_socket(self.connection, server_side=True) as connection:
            self.rfile, self.wfile = connection.makefile("rb"), connection.makefile("wb")
            self.close_connection = False
            while not self.close_connection:
                self.handle_one_request()
            self.rfile.close()
            self.wfile.close()
        self.rfile, self.wfile = BytesIO(), BytesIO()  # what the server itself closes

    def do_POST(self) -> None:
        services = cast(Server, self.server).services
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        arrived = Arrived(self.host, self.path, dict(self.headers), body)
        services.arrived.append(arrived)
        if services.hangs:
            services.over.wait()
        if services.drops or services.hangs:
            self.close_connection = True
            return
        answer = services.answer(arrived)
        try:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) * answer.repeated))
            self.end_headers()
            for _ in range(answer.repeated):
                self.wfile.write(answer.body)
            self.wfile.flush()
        except OSError:  # nobody reads the rest
            self.close_connection = True

    do_GET = do_PUT = do_POST

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
        pass


@contextmanager
def open_services(folder: Path) -> Iterator[Services]:
    server = Server(("127.0.0.1", 0), Handler)
    server.authority = trustme.CA()
    file = folder / "authority.pem"
    server.authority.cert_pem.write_to_path(str(file))
    server.services = services = Services(port=server.server_port, authority=file)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield services
    finally:
        services.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


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
