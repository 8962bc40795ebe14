"""Ask an HTTP server, each time by a connection of its own."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(origin: str, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
    where = urlsplit(origin)
    if where.scheme == "https":
        return http.client.HTTPSConnection(where.netloc, timeout=30, context=tls)
    return http.client.HTTPConnection(where.netloc, timeout=30)


def ask(
    origin: str,
    path: str,
    method: str = "GET",
    body: str | bytes | None = None,
    headers: Mapping[str, str] = NOTHING,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """Send a request; of the names of headers, `_` is `-`."""
    with closing(connect(origin, tls)) as connection:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers, answer.read())
