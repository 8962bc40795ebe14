"""Receive webhooks in a thread: a real server that can be down, hang, or answer as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from spyweb.outbox.send import DELIVERY_HEADER
from tests.fakes.http_server import Answer, Arrived, serving


@dataclass(slots=True)
class Hook:
    """Keeps the webhooks that came; `delivery` is the name that each bore."""

    url: str = ""
    bodies: list[str] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    hangs: bool = False  # never answers
    over: threading.Event = field(default_factory=threading.Event)

    def take(self, arrived: Arrived) -> Answer:
        self.deliveries.append(arrived.headers[DELIVERY_HEADER])
        self.bodies.append(arrived.body.decode())
        if self.hangs:
            self.over.wait()
        return Answer(status=204, body=b"")

    @property
    def messages(self) -> list[str]:
        """The bodies; of a message that came twice under one name, since its sender was killed, the last."""
        return list(dict(zip(self.deliveries, self.bodies, strict=False)).values())


@contextmanager
def open_hook(port: int = 0, *, hangs: bool = False) -> Iterator[Hook]:
    hook = Hook(hangs=hangs)
    with serving(hook.take, port) as origin:
        hook.url = f"{origin}/hook"
        yield hook
        hook.over.set()
