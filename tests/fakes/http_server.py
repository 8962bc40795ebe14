"""Answer HTTP requests in threads, each as the test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass(slots=True)
class Arrived:
    """One request that a server got."""

    host: str
    method: str
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


Answering = Callable[[Arrived], Answer | None]  # None: hang up without a word


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    answer: Answering


class Handler(BaseHTTPRequestHandler):
    host = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        arrived = Arrived(self.host, self.command, self.path, dict(self.headers), body)
        answer = cast(Server, self.server).answer(arrived)
        if answer is None:
            self.close_connection = True
            return
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
def serving(answer: Answering, port: int = 0, handler: type[Handler] = Handler) -> Iterator[str]:
    """Serve on this machine; give the origin."""
    server = Server(("127.0.0.1", port), handler)
    server.answer = answer
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
