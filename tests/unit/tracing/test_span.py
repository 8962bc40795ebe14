"""Which requests belong to which span."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.tracing.span import current_traceparent, part, read_traceparent, sending_as
from tests.fakes.spans import FakeSpan

VALID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_request_belongs_to_the_innermost_span() -> None:
    outer, inner = FakeSpan("outer"), FakeSpan("inner", number=7)
    assert current_traceparent() == ""
    with sending_as(outer):
        with sending_as(inner):
            assert current_traceparent() == inner.traceparent
        assert current_traceparent() == outer.traceparent
    assert current_traceparent() == ""


def test_a_part_ends_with_its_context_and_has_failed_with_it() -> None:
    span = FakeSpan("run")
    with part(span, "fetch"):
        assert current_traceparent() != ""
    with pytest.raises(ValueError, match="no luck"), part(span, "keep"):
        raise ValueError("no luck")
    with pytest.raises(asyncio.CancelledError), part(span, "announce"):
        raise asyncio.CancelledError
    assert span.ended == ["run/fetch", "run/keep: no luck", "run/announce: cancelled"]


def test_without_a_span_there_is_no_part() -> None:
    with part(None, "fetch"):
        assert current_traceparent() == ""


@pytest.mark.parametrize(
    "header",
    [
        "", "00", VALID.upper(), f"{VALID} ", f"{VALID}\n", VALID.replace("00-", "01-", 1), f"{VALID}-x",
        f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{'a' * 32}-{'0' * 16}-01", "00-٣-1-01", "x" * 10_000,
    ],
)  # fmt: skip
def test_what_is_no_header_of_a_trace_is_passed_over(header: str) -> None:
    assert read_traceparent(header) == ""
    assert read_traceparent(VALID) == VALID
