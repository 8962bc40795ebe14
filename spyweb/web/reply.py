"""What a Lua endpoint answered, as an HTTP response: whatever a handler returned, the response is a well-formed one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from aiohttp import web
from multidict import CIMultiDict

from spyweb.endpoints.endpoints import EndpointAnswer
from spyweb.web.answer import WholeAnswer

TEXT, BINARY = "text/plain; charset=utf-8", "application/octet-stream"
FIRST_FINAL = 200  # statuses below it announce another response

# What concerns one connection, and the length of the body, are this server's own affair.
NOT_SENT = frozenset(
    {
        "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
        "te", "trailer", "trailers", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BREAKS = re.compile(rb"[\r\n\0]")


def reply(answer: EndpointAnswer) -> web.Response:
    headers = CIMultiDict(sendable(answer.headers)) if answer.headers else CIMultiDict[str]()
    if answer.body and "Content-Type" not in headers:
        headers["Content-Type"] = TEXT if _is_text(answer.body) else BINARY
    response = WholeAnswer(status=answer.status, body=answer.body, headers=headers)
    if answer.status < FIRST_FINAL:  # no other follows: a client that waits for it shall not wait for ever
        response.force_close()
    return response


def sendable(headers: Mapping[bytes, bytes]) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        if _NAME.fullmatch(name) and not _BREAKS.search(value):
            text = name.decode("ascii")
            if text.lower() not in NOT_SENT:
                yield text, value.decode("utf-8", "surrogateescape")


def _is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
