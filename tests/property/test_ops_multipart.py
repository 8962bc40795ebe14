from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spyweb.ops.http import Part, encode_parts

PARTS = st.lists(
    st.builds(
        Part,
        name=st.binary(max_size=20),
        content=st.binary(max_size=100),
        filename=st.none() | st.binary(max_size=20),
    ),
    max_size=5,
)


@given(PARTS)
def test_a_form_splits_into_just_the_contents_that_were_put_in(parts: list[Part]) -> None:
    kind, body = encode_parts(parts)
    boundary = b"--" + kind.partition(b"boundary=")[2]
    assert body.endswith(boundary + b"--\r\n")
    pieces = (b"\r\n" + body).split(b"\r\n" + boundary)[1:-1]
    heads, contents = (
        zip(*(piece.removeprefix(b"\r\n").split(b"\r\n\r\n", 1) for piece in pieces), strict=True)
        if pieces
        else ((), ())
    )
    assert list(contents) == [part.content for part in parts]
    for head, part in zip(heads, parts, strict=True):
        assert head.count(b"\r\n") == (part.filename is not None)
        assert head.count(b'"') == (2 if part.filename is None else 4)
