from __future__ import annotations

import pytest

from spyweb.extraction.wire import (
    MAX_FRAME,
    AnswerReader,
    Check,
    Done,
    Extract,
    ExtractorReady,
    Rows,
    ask_decoder,
    frame,
    plain,
)

ANSWERS = [ExtractorReady(["no files"]), Rows([["a", "ß"], ["", "\0"]]), Rows([]), Done(), Done("no selector", True)]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_answers_are_read_however_they_arrive(step: int) -> None:
    sent = b"".join(frame(answer) for answer in ANSWERS)
    reader, heard = AnswerReader(), []
    for at in range(0, len(sent), step):
        reader.add(sent[at : at + step])
        while (answer := reader.take()) is not None:
            heard.append(answer)

    assert heard == ANSWERS


@pytest.mark.parametrize("nonsense", [(MAX_FRAME + 1).to_bytes(4, "little"), b"\1\0\0\0\xc1", b"\2\0\0\0\x91\x07"])
def test_what_can_not_be_right_is_refused(nonsense: bytes) -> None:
    reader = AnswerReader()
    reader.add(nonsense)

    with pytest.raises(ValueError, match=r"\w"):
        reader.take()


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
