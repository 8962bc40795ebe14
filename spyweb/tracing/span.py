"""The spans of a run as the rest of spyweb sees them.  Where nothing is traced there are none, and nothing is asked."""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

TRACEPARENT = "traceparent"  # the header of W3C
_VALID = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

Attributes = Mapping[str, str | int]
NOTHING: Attributes = {}


class TraceSpan(Protocol):
    @property
    def traceparent(self) -> str:
        """Return the header by which the server of a request joins this trace."""

    def child(self, name: str, attributes: Attributes = NOTHING) -> TraceSpan:
        """Begin a part of this span."""

    def end(self, error: str = "") -> None:
        """End the span; it has failed where there is an error.  Only the first end counts."""


class Tracer(Protocol):
    def begin(self, name: str, attributes: Attributes, parent: str = "") -> TraceSpan | None:
        """Begin the span of a run, part of the trace that its request came from; None where it is not sampled."""


_current: ContextVar[str] = ContextVar("traceparent", default="")


def current_traceparent() -> str:
    """Return the header for requests that the current task sends; empty where it is not traced."""
    return _current.get()


@contextmanager
def sending_as(span: TraceSpan) -> Iterator[None]:
    """Let requests that are sent in this context belong to the span."""
    token = _current.set(span.traceparent)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def part(span: TraceSpan | None, name: str) -> Iterator[None]:
    """Let this context be a part of the span, if there is one."""
    if span is None:
        yield
        return
    child = span.child(name)
    try:
        with sending_as(child):
            yield
    except BaseException as error:
        # One that says nothing is no failure: a cycle that a hook has ended.
        child.end("cancelled" if isinstance(error, CancelledError) else str(error))
        raise
    child.end()


def read_traceparent(header: str) -> str:
    """Return the header of a request where it is valid, else an empty text."""
    return header if _VALID.fullmatch(header) else ""
