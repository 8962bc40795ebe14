from __future__ import annotations

import pytest

from spyweb.extraction.wire import Check, Extract, ask_decoder, frame, plain


@pytest.mark.parametrize(
    "ask",
    [
        Extract(size=3, content_type="text/html", url="http://h/", selector="a", fields=(("", None), ("b", "href"))),
        Check("a", of_field=True),
    ],
)
def test_what_is_asked_arrives_as_it_is(ask: Extract | Check) -> None:
    assert ask_decoder.decode(frame(ask)[4:]) == ask


def test_bytes_that_are_no_text_can_be_sent() -> None:
    assert plain("text/html") == "text/html"
    assert plain("größe") == "größe"
    assert frame(Check(plain("a\udcff"), of_field=False))
