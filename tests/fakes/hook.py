"""Receive webhooks in a thread: a real server that can be down, hang, or answer as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from spyweb.outbox.send import DELIVERY_HEADER


@dataclass(slots=True)
class Hook:
    """Keeps the webhooks that came; `delivery` is the name that each bore."""

    url: str
    bodies: list[str] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    hangs: bool = False  # never answers
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[str]:
        """The bodies; of a message that came twice under one name, since its sender was killed, the last."""
        return list(dict(zip(self.deliveries, self.bodies, strict=False)).values())


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    hook: Hook


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        hook = cast(Server, self.server).hook
        body = self.rfile.read(int(self.headers["Content-Length"]))
        hook.deliveries.append(self.headers[DELIVERY_HEADER])
        hook.bodies.append(body.decode())
        if hook.hangs:
            hook.over.wait()
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
        pass


@contextmanager
def open_hook(port: int = 0, *, hangs: bool = False) -> Iterator[Hook]:
    server = Server(("127.0.0.1", port), Handler)
    server.hook = hook = Hook(f"http://127.0.0.1:{server.server_port}/hook", hangs=hangs)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hook
    finally:
        hook.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
